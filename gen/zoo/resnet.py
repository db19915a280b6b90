"""Residual networks: ResNet-18 and 50, ResNeXt-50, BiRealNet-18 with binary convolutions or ordinary ones, ReActNet-18.
"""

from collections.abc import Sequence
from functools import partial

from gen.zoo.builder import Builder, Tensor
from gen.zoo.network import Network

__all__ = ["NETWORKS", "residual_stages"]

#: Of the four stages, each but the first of which halves the image.
_CHANNELS = (64, 128, 256, 512)


def _stem(b: Builder, image: Tensor) -> Tensor:
    return b.norm(b.conv(image, 64, 7, stride=2, name="conv1"))


def residual_stages(b: Builder, x: Tensor, channels: Sequence[int]) -> Tensor:
    """Two blocks of two 3x3 convolutions for each stage; all but the first halve the map."""
    for stage, outputs in enumerate(channels, start=1):
        for block in range(2):
            name, stride = f"l{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = b.relu(b.norm(b.conv(x, outputs, 3, stride=stride, name=f"{name}.conv1")))
            y = b.norm(b.conv(y, outputs, 3, name=f"{name}.conv2"))
            if stride > 1:
                x = b.norm(b.conv(x, outputs, 1, stride=stride, name=f"{name}.down"))
            x = b.relu(b.node("Add", y, x, name=f"{name}.add"))
    return x


def _resnet18(b: Builder, image: Tensor, classes: int) -> None:
    """He et al. (2015)."""
    x = b.max_pool(b.relu(_stem(b, image)), 3, pad=1, name="pool")
    b.classify(residual_stages(b, x, _CHANNELS), classes)


def _bottlenecks(b: Builder, image: Tensor, classes: int, *, width: int, groups: int = 1) -> None:
    """ResNet-50 (He et al., 2015), ResNeXt-50 (Xie et al., 2017); ``width``: in the middle, of the first stage.

    A stage's stride is in its first 3x3 convolution, as in what PyTorch has of them.
    """
    x = b.max_pool(b.relu(_stem(b, image)), 3, pad=1, name="pool")
    for stage, count in enumerate((3, 4, 6, 3), start=1):
        channels, middle = 256 << stage - 1, width << stage - 1
        for block in range(count):
            name, stride = f"l{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = b.relu(b.norm(b.conv(x, middle, 1, name=f"{name}.conv1")))
            y = b.relu(b.norm(b.conv(y, middle, 3, stride=stride, groups=groups, name=f"{name}.conv2")))
            y = b.norm(b.conv(y, channels, 1, name=f"{name}.conv3"))
            if block == 0:
                x = b.norm(b.conv(x, channels, 1, stride=stride, name=f"{name}.down"))
            x = b.relu(b.node("Add", y, x, name=f"{name}.add"))
    b.classify(x, classes)


def _birealnet18(b: Builder, image: Tensor, classes: int, *, binary: bool, shifts: bool = False) -> None:
    """Liu et al. (2018): a shortcut around every 3x3 convolution; with ``binary``, those are of signs; with ``shifts``
    the signs and what follows each sum are those of ReActNet (Liu et al., 2020).
    """
    def shift(x: Tensor, name: str) -> Tensor:
        return b.node("Add", x, b.shifts(x.channels, 1, 1), name=name) if shifts else x

    x = b.max_pool(_stem(b, image), 3, pad=1, name="pool")
    for stage, channels in enumerate(_CHANNELS, start=1):
        for number in range(4):
            block, conv = f"l{stage}.{number // 2}", f"conv{number % 2 + 1}"
            name, stride = f"{block}.{conv}", 2 if stage > 1 and number == 0 else 1
            signs = b.node("Sign", shift(x, f"{name}.threshold"), name=f"{name}.sign") if binary else x
            y = b.norm(b.conv(signs, channels, 3, stride=stride, signs=binary, name=name))
            if stride > 1:
                x = b.node("AveragePool", x, name=f"{block}.average", kernel_shape=[2, 2], strides=[2, 2])
                x = b.norm(b.conv(x, channels, 1, name=f"{block}.down"))
            x = shift(b.node("Add", y, x, name=f"{name}.add"), f"{name}.before")
            if shifts:
                x = shift(b.node("PRelu", x, b.slopes(channels, 1, 1), name=f"{name}.prelu"), f"{name}.after")
    b.classify(x, classes)


NETWORKS = (
    Network(name="resnet18", title="ResNet-18", layers=_resnet18),
    Network(name="resnet50", title="ResNet-50", layers=partial(_bottlenecks, width=64)),
    Network(name="resnext50", title="ResNeXt-50", layers=partial(_bottlenecks, width=128, groups=32)),
    Network(name="birealnet18", title="BiRealNet-18", layers=partial(_birealnet18, binary=True), step=32),
    Network(name="birealnet18-dense", title="BiRealNet-18 with ordinary convolutions",
            layers=partial(_birealnet18, binary=False), step=32),
    Network(name="reactnet18", title="ReActNet-18", layers=partial(_birealnet18, binary=True, shifts=True), step=32),
)
