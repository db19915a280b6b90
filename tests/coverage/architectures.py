"""The architectures: where each is from, and what its input is. Libraries are imported when a network is made."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ARCHITECTURES", "Architecture"]


@dataclass(frozen=True)
class Architecture:
    """``make``: the network with random weights; ``origin``: where it is from; ``shape``: of its input, one sample."""

    origin: str
    shape: tuple[int, ...]
    make: "Callable[[], nn.Module]"


def _torchvision(name: str, size: int) -> Architecture:
    def make() -> "nn.Module":
        from torchvision import models

        # No trained backbones, and no warning that GoogLeNet will draw its weights in another way some day.
        options: dict[str, object] = {"weights": None}
        if name in dir(models.segmentation):
            options["weights_backbone"] = None
        if name == "googlenet":
            options |= {"aux_logits": False, "init_weights": True}
        return models.get_model(name, **options)

    return Architecture(f"torchvision {name}", (1, 3, size, size), make)


def _timm(name: str, size: int) -> Architecture:
    def make() -> "nn.Module":
        import timm

        return timm.create_model(name, pretrained=False)

    return Architecture(f"timm {name}", (1, 3, size, size), make)


def _ultralytics(name: str, size: int) -> Architecture:
    """With the decoding of boxes, as its own exporter writes it."""
    def make() -> "nn.Module":
        from ultralytics import YOLO

        model = YOLO(f"{name}.yaml").model.fuse(verbose=False)
        head = model.model[-1]
        head.export, head.format = True, "onnx"
        return model

    return Architecture(f"ultralytics {name}.yaml", (1, 3, size, size), make)


def _own(origin: str, shape: tuple[int, ...], make: "Callable[[], nn.Module]") -> Architecture:
    return Architecture(origin, (1, *shape), make)


def _autoencoder() -> "nn.Module":
    from tests.coverage.networks import Autoencoder

    return Autoencoder()


def _keywords() -> "nn.Module":
    from tests.coverage.networks import KeywordTransformer

    return KeywordTransformer()


def _recurrent(kind: str) -> "Callable[[], nn.Module]":
    def make() -> "nn.Module":
        from torch import nn

        from tests.coverage.networks import Recurrent

        return Recurrent(getattr(nn, kind))

    return make


def _temporal() -> "nn.Module":
    from tests.coverage.networks import TemporalConvolutions

    return TemporalConvolutions()


def _unet(bilinear: bool) -> "Callable[[], nn.Module]":
    def make() -> "nn.Module":
        from tests.coverage.networks import UNet

        return UNet(bilinear=bilinear)

    return make


#: Name -> architecture, the quick ones first.
ARCHITECTURES = {
    "mlperf_ad": _own("autoencoder 640-128x4-8-128x4-640 with BatchNorm", (640,), _autoencoder),
    "tcn": _own("4 dilated Conv1d of 64, mean, Linear", (40, 98), _temporal),
    "lstm_kws": _own("LSTM(40, 64, 2 layers), Linear", (49, 40), _recurrent("LSTM")),
    "gru_kws": _own("GRU(40, 64, 2 layers), Linear", (49, 40), _recurrent("GRU")),
    "kwt1": _own("KWT-1: d 64, 1 head, 4 layers, post-norm, GELU, class token", (98, 40), _keywords),
    "unet_convt": _own("U-Net 16-32-64-128, ConvTranspose2d(2, 2)", (3, 128, 128), _unet(False)),
    "unet_bilinear": _own("U-Net 16-32-64-128, bilinear Upsample and 1x1", (3, 128, 128), _unet(True)),
    "convnext_tiny": _torchvision("convnext_tiny", 64),
    "deit_tiny_patch16_224": _timm("deit_tiny_patch16_224", 224),
    "mixer_s32_224": _timm("mixer_s32_224", 224),
    "repvgg_a0": _timm("repvgg_a0", 224),
    "levit_128s": _timm("levit_128s", 224),
    "edgenext_xx_small": _timm("edgenext_xx_small", 256),
    "efficientvit_b0": _timm("efficientvit_b0", 224),
    "deeplabv3_mnv3": _torchvision("deeplabv3_mobilenet_v3_large", 128),
    "lraspp_mnv3": _torchvision("lraspp_mobilenet_v3_large", 128),
    "yolov8n-seg": _ultralytics("yolov8n-seg", 256),
    "yolov8n": _ultralytics("yolov8n", 256),
    "yolov5n": _ultralytics("yolov5n", 256),
    "yolo11n": _ultralytics("yolo11n", 256),
    "yolo26n": _ultralytics("yolo26n", 256),
    "poolformer_s12": _timm("poolformer_s12", 224),
    "mobilevit_xxs": _timm("mobilevit_xxs", 256),
    "mobilevitv2_050": _timm("mobilevitv2_050", 256),
    "mobilenetv3_small": _torchvision("mobilenet_v3_small", 224),
    "shufflenetv2": _torchvision("shufflenet_v2_x0_5", 224),
    "mnasnet": _torchvision("mnasnet0_5", 224),
    "squeezenet11": _torchvision("squeezenet1_1", 224),
    "googlenet": _torchvision("googlenet", 224),
    "densenet121": _torchvision("densenet121", 64),
    "regnet_y_400mf": _torchvision("regnet_y_400mf", 224),
    "efficientnet_b0": _timm("efficientnet_b0", 224),
    "efficientnet_lite0": _timm("efficientnet_lite0", 224),
    "fastvit_t8": _timm("fastvit_t8", 256),
    "ghostnet_100": _timm("ghostnet_100", 224),
    "hrnet_w18_small": _timm("hrnet_w18_small", 224),
    "mobilenetv4_conv_small": _timm("mobilenetv4_conv_small", 224),
    "starnet_s1": _timm("starnet_s1", 224),
    "resnet50": _timm("resnet50", 224),
    "resnext50_32x4d": _timm("resnext50_32x4d", 224),
    "swin_t": _torchvision("swin_t", 224),
}
