"""Narrow networks of five kinds, for images of 32x32 in ten classes: small enough to be trained in minutes."""

from collections.abc import Callable
from dataclasses import dataclass

import onnx

from gen.zoo.builder import Builder, Tensor
from gen.zoo.resnet import residual_stages

__all__ = ["NETWORKS", "TrainedNetwork"]

_CLASSES, _SHAPE, _SEED = 10, (3, 32, 32), 1
#: Channels of VGG's convolutions; after each number of them that is named, a maximum of 2x2.
_VGG, _POOLED = (16, 32, 64, 64, 128, 128), (1, 2, 4)
#: Channels of ResNet-18's four stages.
_RESNET = (16, 32, 64, 64)
#: Output channels and stride of MobileNetV1's pairs.
_PAIRS = ((32, 2), (64, 1), (64, 2), (128, 1), (128, 2), (128, 1))
#: Output channels and stride of MobileNetV2's blocks, which are four times as wide in the middle.
_BLOCKS = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1))
_EXPANSION = 4
#: Channels of the stages of Bi-Real Net, two convolutions each.
_BIREAL = (32, 64, 128)


@dataclass(frozen=True, kw_only=True)
class TrainedNetwork:
    """``binary``: its layers read signs, and get binary weights in a second stage of training."""

    title: str
    layers: Callable[[Builder, Tensor], None]
    #: Percent of the weights that are 0, of layers that can be pruned; binary ones cannot.
    sparsities: tuple[int, ...] = (0, 50, 75, 80)
    binary: bool = False

    def made(self) -> onnx.ModelProto:
        """With seeded random weights; input ``image`` (1, 3, 32, 32)."""
        builder = Builder(name="network", seed=_SEED)
        self.layers(builder, builder.image(_SHAPE, 16))
        return builder.model


def _vgg(b: Builder, x: Tensor) -> None:
    for number, channels in enumerate(_VGG, start=1):
        x = b.relu(b.norm(b.conv(x, channels, 3, name=f"conv{number}")))
        if number in _POOLED:
            x = b.max_pool(x, 2, name=f"pool{number}")
    b.classify(x, _CLASSES)


def _resnet(b: Builder, x: Tensor) -> None:
    x = b.relu(b.norm(b.conv(x, _RESNET[0], 3, stride=2, name="conv1")))
    b.classify(residual_stages(b, x, _RESNET), _CLASSES)


def _layer(b: Builder, x: Tensor, channels: int, kernel: int, name: str, *, stride: int = 1, groups: int = 1) -> Tensor:
    return b.relu6(b.norm(b.conv(x, channels, kernel, stride=stride, groups=groups, name=name)))


def _mobilenetv1(b: Builder, x: Tensor) -> None:
    x = _layer(b, x, 16, 3, "conv0")
    for number, (channels, stride) in enumerate(_PAIRS, start=1):
        x = _layer(b, x, x.channels, 3, f"dw{number}", stride=stride, groups=x.channels)
        x = _layer(b, x, channels, 1, f"pw{number}")
    b.classify(x, _CLASSES)


def _mobilenetv2(b: Builder, x: Tensor) -> None:
    x = _layer(b, x, 16, 3, "conv0", stride=2)
    for number, (channels, stride) in enumerate(_BLOCKS, start=1):
        name, wide = f"b{number}", _EXPANSION * x.channels
        y = _layer(b, x, wide, 1, f"{name}.exp")
        y = _layer(b, y, wide, 3, f"{name}.dw", stride=stride, groups=wide)
        y = b.norm(b.conv(y, channels, 1, name=f"{name}.proj"))
        x = b.node("Add", y, x, name=f"{name}.add") if (stride, channels) == (1, x.channels) else y
    b.classify(_layer(b, x, 128, 1, "last"), _CLASSES)


def _bireal(b: Builder, x: Tensor, activation: str) -> None:
    """A shortcut around each convolution, whose input is the sign of what the shortcut has, or its ReLU."""
    x = b.norm(b.conv(x, _BIREAL[0], 3, stride=2, name="conv1"))
    for stage, channels in enumerate(_BIREAL, start=1):
        for number in range(2):
            name, stride = f"l{stage}.{number}", 2 if stage > 1 and number == 0 else 1
            read = b.node(activation, x, name=f"{name}.{activation.lower()}")
            y = b.norm(b.conv(read, channels, 3, stride=stride, name=name))
            if stride > 1:
                x = b.node("AveragePool", x, name=f"{name}.average", kernel_shape=[2, 2], strides=[2, 2])
                x = b.norm(b.conv(x, channels, 1, name=f"{name}.down"))
            x = b.node("Add", y, x, name=f"{name}.add")
    b.classify(x, _CLASSES)


NETWORKS = (
    TrainedNetwork(title="VGG-type", layers=_vgg),
    TrainedNetwork(title="ResNet-18-type", layers=_resnet),
    TrainedNetwork(title="MobileNetV1-type", layers=_mobilenetv1),
    TrainedNetwork(title="MobileNetV2-type", layers=_mobilenetv2),
    TrainedNetwork(title="BiReal-type with ReLUs", layers=lambda b, x: _bireal(b, x, "Relu"), sparsities=(0,)),
    TrainedNetwork(title="BiReal-type", layers=lambda b, x: _bireal(b, x, "Sign"), sparsities=(0,), binary=True),
)
