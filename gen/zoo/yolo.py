"""YOLOv3 and YOLOv3-tiny (Redmon and Farhadi, 2018), to the results of their detection layers."""

from functools import partial

from gen.zoo.builder import Builder, Tensor, floats
from gen.zoo.network import Network

__all__ = ["NETWORKS", "joined"]

#: Residual blocks of the five stages of Darknet-53.
_BLOCKS = (1, 2, 8, 8, 4)
#: Boxes of each pixel of a map, of four numbers, one for whether there is anything, and one a class.
_BOXES, _NUMBERS = 3, 5


def _layer(b: Builder, x: Tensor, channels: int, kernel: int, *, name: str, stride: int = 1) -> Tensor:
    return b.leaky(b.norm(b.conv(x, channels, kernel, stride=stride, name=name)))


def joined(b: Builder, x: Tensor, other: Tensor, name: str) -> Tensor:
    """``x``, doubled in height and width, in front of ``other``."""
    doubled = b.node("Resize", x, floats([]), floats([1, 1, 2, 2]), name=f"{name}.resize", mode="nearest",
                     coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    return b.node("Concat", doubled, other, name=f"{name}.concat", axis=1)


def _detect(b: Builder, x: Tensor, classes: int, name: str) -> None:
    b.output(b.biased_conv(x, _BOXES * (_NUMBERS + classes), 1, name=name))


def _yolov3(b: Builder, image: Tensor, classes: int) -> None:
    x, stages = _layer(b, image, 32, 3, name="c0"), []
    for stage, blocks in enumerate(_BLOCKS):
        channels = 64 << stage
        x = _layer(b, x, channels, 3, stride=2, name=f"s{stage}.down")
        for block in range(blocks):
            name = f"s{stage}.{block}"
            y = _layer(b, x, channels // 2, 1, name=f"{name}.1x1")
            x = b.node("Add", _layer(b, y, channels, 3, name=f"{name}.3x3"), x, name=f"{name}.add")
        stages.append(x)
    # Heads are called by their pixels on a side for 416x416.
    x = _head(b, x, 1024, classes, "h13")
    x = joined(b, _layer(b, x, 256, 1, name="up26"), stages[3], "up26")
    x = _head(b, x, 512, classes, "h26")
    x = joined(b, _layer(b, x, 128, 1, name="up52"), stages[2], "up52")
    _head(b, x, 256, classes, "h52")


def _head(b: Builder, x: Tensor, channels: int, classes: int, name: str) -> Tensor:
    """1x1 and 3x3 layers in turn and a detection layer; returns the last 1x1, from which the next map goes on."""
    for number in range(0, 6, 2):
        narrow = _layer(b, x, channels // 2, 1, name=f"{name}.{number}")
        x = _layer(b, narrow, channels, 3, name=f"{name}.{number + 1}")
    _detect(b, x, classes, f"{name}.det")
    return narrow


def _tiny(b: Builder, image: Tensor, classes: int) -> None:
    x = image
    for number in range(5):
        route = _layer(b, x, 16 << number, 3, name=f"c{number}")
        x = b.max_pool(route, 2, name=f"pool{number}")
    x = _layer(b, x, 512, 3, name="c5")
    # A maximum of stride 1: the image stays as large, as if another row and column came after it.
    x = b.node("MaxPool", x, name="pool5", kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1])
    x = _layer(b, _layer(b, x, 1024, 3, name="c6"), 256, 1, name="c7")
    _detect(b, _layer(b, x, 512, 3, name="c8"), classes, "det13")
    x = joined(b, _layer(b, x, 128, 1, name="up"), route, "up")
    _detect(b, _layer(b, x, 256, 3, name="c9"), classes, "det26")


_network = partial(Network, size=(416, 416), step=32, least=64, classes=80)

NETWORKS = (
    _network(name="yolov3", title="YOLOv3", layers=_yolov3),
    _network(name="yolov3-tiny", title="YOLOv3-tiny", layers=_tiny),
)
