"""YOLOv3 and YOLOv3-tiny (Redmon and Farhadi, 2018), to the results of their detection layers, or to boxes."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gen.zoo.builder import Builder, Tensor, floats
from gen.zoo.detections import detections
from gen.zoo.network import Network

__all__ = ["NETWORKS", "TINY_ANCHORS", "decoded", "joined", "tiny_heads"]

#: Residual blocks of the five stages of Darknet-53.
_BLOCKS = (1, 2, 8, 8, 4)
#: Boxes of each pixel of a map, of four numbers, one for whether there is anything, and one a class.
_BOXES, _NUMBERS = 3, 5
#: Width and height of the boxes of each map in pixels of a picture of ``_SIDE``, from the coarsest map on.
_ANCHORS = (((116, 90), (156, 198), (373, 326)), ((30, 61), (62, 45), (59, 119)), ((10, 13), (16, 30), (33, 23)))
TINY_ANCHORS = (((81, 82), (135, 169), (344, 319)), ((10, 14), (23, 27), (37, 58)))
_SIDE = 416


def _layer(b: Builder, x: Tensor, channels: int, kernel: int, *, name: str, stride: int = 1) -> Tensor:
    return b.leaky(b.norm(b.conv(x, channels, kernel, stride=stride, name=name)))


def joined(b: Builder, x: Tensor, other: Tensor, name: str) -> Tensor:
    """``x``, doubled in height and width, in front of ``other``."""
    doubled = b.node("Resize", x, floats([]), floats([1, 1, 2, 2]), name=f"{name}.resize", mode="nearest",
                     coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    return b.node("Concat", doubled, other, name=f"{name}.concat", axis=1)


def _detect(b: Builder, x: Tensor, classes: int, name: str) -> Tensor:
    return b.biased_conv(x, _BOXES * (_NUMBERS + classes), 1, name=name)


def _heads(b: Builder, image: Tensor, classes: int) -> list[Tensor]:
    """Of YOLOv3, from the coarsest map on."""
    x, stages, heads = _layer(b, image, 32, 3, name="c0"), [], list[Tensor]()
    for stage, blocks in enumerate(_BLOCKS):
        channels = 64 << stage
        x = _layer(b, x, channels, 3, stride=2, name=f"s{stage}.down")
        for block in range(blocks):
            name = f"s{stage}.{block}"
            y = _layer(b, x, channels // 2, 1, name=f"{name}.1x1")
            x = b.node("Add", _layer(b, y, channels, 3, name=f"{name}.3x3"), x, name=f"{name}.add")
        stages.append(x)
    # Heads are called by their pixels on a side for 416x416.
    x = _head(b, x, 1024, classes, "h13", heads)
    x = joined(b, _layer(b, x, 256, 1, name="up26"), stages[3], "up26")
    x = _head(b, x, 512, classes, "h26", heads)
    x = joined(b, _layer(b, x, 128, 1, name="up52"), stages[2], "up52")
    _head(b, x, 256, classes, "h52", heads)
    return heads


def _head(b: Builder, x: Tensor, channels: int, classes: int, name: str, heads: list[Tensor]) -> Tensor:
    """1x1 and 3x3 layers in turn and a detection layer, which is added to ``heads``; returns the last 1x1, from which
    the next map goes on.
    """
    for number in range(0, 6, 2):
        narrow = _layer(b, x, channels // 2, 1, name=f"{name}.{number}")
        x = _layer(b, narrow, channels, 3, name=f"{name}.{number + 1}")
    heads.append(_detect(b, x, classes, f"{name}.det"))
    return narrow


def tiny_heads(b: Builder, image: Tensor, classes: int) -> list[Tensor]:
    """Of YOLOv3-tiny, from the coarsest map on."""
    x = image
    for number in range(5):
        route = _layer(b, x, 16 << number, 3, name=f"c{number}")
        x = b.max_pool(route, 2, name=f"pool{number}")
    x = _layer(b, x, 512, 3, name="c5")
    # A maximum of stride 1: the image stays as large, as if another row and column came after it.
    x = b.node("MaxPool", x, name="pool5", kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1])
    x = _layer(b, _layer(b, x, 1024, 3, name="c6"), 256, 1, name="c7")
    coarse = _detect(b, _layer(b, x, 512, 3, name="c8"), classes, "det13")
    x = joined(b, _layer(b, x, 128, 1, name="up"), route, "up")
    return [coarse, _detect(b, _layer(b, x, 256, 3, name="c9"), classes, "det26")]


def _slice(b: Builder, x: Tensor, start: int, end: int, name: str) -> Tensor:
    return b.node("Slice", x, *(np.array([number]) for number in (start, end, -1)), name=name)


def decoded(b: Builder, head: Tensor, anchors: Sequence[tuple[int, int]], name: str) -> tuple[Tensor, Tensor]:
    """Corners (N, boxes, 4) in images and scores (N, boxes, classes)."""
    _, channels, height, width = head.sample.shape
    values = channels // len(anchors)
    x = b.node("Reshape", head, np.array([0, len(anchors), values, height, width]), name=f"{name}.split")
    x = b.node("Transpose", x, name=f"{name}.last", perm=[0, 1, 3, 4, 2])
    grid = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1)
    size = np.array([width, height], np.float32)
    centre = b.node("Sigmoid", _slice(b, x, 0, 2, f"{name}.xy"), name=f"{name}.offset")
    centre = b.node("Mul", b.node("Add", centre, floats(grid), name=f"{name}.cell"), floats(1 / size),
                    name=f"{name}.centre")
    half = b.node("Exp", _slice(b, x, 2, 4, f"{name}.wh"), name=f"{name}.growth")
    half = b.node("Mul", half, floats(np.array(anchors)[:, None, None] / _SIDE / 2), name=f"{name}.half")
    corners = b.node("Concat", b.node("Sub", centre, half, name=f"{name}.low"),
                     b.node("Add", centre, half, name=f"{name}.high"), name=f"{name}.corners", axis=-1)
    chances = b.node("Sigmoid", _slice(b, x, 4, values, f"{name}.chances"), name=f"{name}.sigmoid")
    scores = b.node("Mul", _slice(b, chances, 0, 1, f"{name}.object"), _slice(b, chances, 1, values, f"{name}.class"),
                    name=f"{name}.scores")
    return (b.node("Reshape", corners, np.array([0, -1, 4]), name=f"{name}.boxes"),
            b.node("Reshape", scores, np.array([0, -1, values - _NUMBERS]), name=f"{name}.rows"))


_Heads = Callable[[Builder, Tensor, int], list[Tensor]]


def _to_heads(b: Builder, image: Tensor, classes: int, *, heads: _Heads) -> None:
    for tensor in heads(b, image, classes):
        b.output(tensor)


def _to_boxes(b: Builder, image: Tensor, classes: int, *, heads: _Heads,
              anchors: Sequence[Sequence[tuple[int, int]]]) -> None:
    parts = [decoded(b, head, mine, f"map{number}")
             for number, (head, mine) in enumerate(zip(heads(b, image, classes), anchors, strict=True))]
    boxes = b.node("Concat", *(part[0] for part in parts), name="boxes", axis=1)
    rows = b.node("Concat", *(part[1] for part in parts), name="rows", axis=1)
    detections(b, boxes, b.node("Transpose", rows, name="scores", perm=[0, 2, 1]))


_network = partial(Network, size=(416, 416), step=32, least=64, classes=80)

NETWORKS = (
    _network(name="yolov3", title="YOLOv3", layers=partial(_to_heads, heads=_heads)),
    _network(name="yolov3-tiny", title="YOLOv3-tiny", layers=partial(_to_heads, heads=tiny_heads)),
    _network(name="yolov3-boxes", title="YOLOv3, to boxes", layers=partial(_to_boxes, heads=_heads, anchors=_ANCHORS)),
    _network(name="yolov3-tiny-boxes", title="YOLOv3-tiny, to boxes",
             layers=partial(_to_boxes, heads=tiny_heads, anchors=TINY_ANCHORS)),
)
