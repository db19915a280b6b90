"""YOLO11n of Ultralytics (2024), its boxes decoded and selected by ONNX operators."""

from collections.abc import Callable, Sequence

import numpy as np

from gen.zoo.builder import Builder, Tensor, floats
from gen.zoo.detections import detections
from gen.zoo.network import Network
from gen.zoo.yolo import joined

__all__ = ["NETWORKS", "c2psa"]

#: The distance of a box's side from its pixel is the mean of so many, 0, 1, ..., by their chances.
_DISTANCES = 16
_STRIDES = (8, 16, 32)
_KEYS, _VALUES = 32, 64     # of a head of attention

_Block = Callable[..., Tensor]


def _plain(b: Builder, x: Tensor, channels: int, kernel: int, *, name: str, stride: int = 1,
           groups: int = 1) -> Tensor:
    return b.norm(b.conv(x, channels, kernel, stride=stride, groups=groups, name=name))


def _layer(b: Builder, x: Tensor, channels: int, kernel: int, *, name: str, stride: int = 1,
           groups: int = 1) -> Tensor:
    return b.silu(_plain(b, x, channels, kernel, stride=stride, groups=groups, name=name))


def _halves(b: Builder, x: Tensor, name: str) -> tuple[Tensor, Tensor]:
    half = x.channels // 2
    return b.slice(x, 0, half, 1, name=f"{name}.a"), b.slice(x, half, x.channels, 1, name=f"{name}.b")


def _bottleneck(b: Builder, x: Tensor, *, name: str, narrow: int = 2) -> Tensor:
    y = _layer(b, x, x.channels // narrow, 3, name=f"{name}.cv1")
    return b.node("Add", x, _layer(b, y, x.channels, 3, name=f"{name}.cv2"), name=f"{name}.add")


def _c3k(b: Builder, x: Tensor, *, name: str) -> Tensor:
    """Two bottlenecks beside a shortcut of 1x1."""
    half = x.channels // 2
    y = _layer(b, x, half, 1, name=f"{name}.cv1")
    for number in range(2):
        y = _bottleneck(b, y, narrow=1, name=f"{name}.m{number}")
    y = b.node("Concat", y, _layer(b, x, half, 1, name=f"{name}.cv2"), name=f"{name}.concat", axis=1)
    return _layer(b, y, x.channels, 1, name=f"{name}.cv3")


def _c3k2(b: Builder, x: Tensor, channels: int, block: _Block, *, name: str, share: int = 2) -> Tensor:
    """Two parts of ``channels / share``, and what ``block`` makes of the second, joined."""
    parts = _halves(b, _layer(b, x, 2 * channels // share, 1, name=f"{name}.cv1"), name)
    y = b.node("Concat", *parts, block(b, parts[1], name=f"{name}.m"), name=f"{name}.concat", axis=1)
    return _layer(b, y, channels, 1, name=f"{name}.cv2")


def _sppf(b: Builder, x: Tensor, *, name: str) -> Tensor:
    """Maxima of 5, 9 and 13 pixels beside what they are of."""
    parts = [_layer(b, x, x.channels // 2, 1, name=f"{name}.cv1")]
    for number in range(3):
        parts.append(b.max_pool(parts[-1], 5, stride=1, pad=2, name=f"{name}.pool{number}"))
    return _layer(b, b.node("Concat", *parts, name=f"{name}.concat", axis=1), x.channels, 1, name=f"{name}.cv2")


def _attention(b: Builder, x: Tensor, *, name: str) -> Tensor:
    """Of pixels with each other; values are also convolved, for their positions."""
    channels, height, width = x.sample.shape[1:]
    heads, pixels = channels // _VALUES, height * width
    joined = _plain(b, x, heads * (2 * _KEYS + _VALUES), 1, name=f"{name}.qkv")
    joined = b.reshape(joined, heads, 2 * _KEYS + _VALUES, pixels, name=f"{name}.heads")
    query = b.slice(joined, 0, _KEYS, 2, name=f"{name}.q")
    key = b.slice(joined, _KEYS, 2 * _KEYS, 2, name=f"{name}.k")
    value = b.slice(joined, 2 * _KEYS, 2 * _KEYS + _VALUES, 2, name=f"{name}.v")
    query = b.node("Mul", query, floats(_KEYS ** -0.5), name=f"{name}.q.scaled")
    scores = b.product(b.transpose(query, 0, 1, 3, 2, name=f"{name}.q.turned"), key, name=f"{name}.scores")
    chances = b.node("Softmax", scores, name=f"{name}.chances", axis=-1)
    y = b.product(value, b.transpose(chances, 0, 1, 3, 2, name=f"{name}.turned"), name=f"{name}.values")
    values = b.reshape(value, channels, height, width, name=f"{name}.v.map")
    y = b.node("Add", b.reshape(y, channels, height, width, name=f"{name}.map"),
               _plain(b, values, channels, 3, groups=channels, name=f"{name}.pe"), name=f"{name}.add")
    return _plain(b, y, channels, 1, name=f"{name}.proj")


def c2psa(b: Builder, x: Tensor, *, name: str) -> Tensor:
    """A transformer block of one half of the channels."""
    left, y = _halves(b, _layer(b, x, x.channels, 1, name=f"{name}.cv1"), name)
    y = b.node("Add", y, _attention(b, y, name=f"{name}.attn"), name=f"{name}.add1")
    wide = _layer(b, y, 2 * y.channels, 1, name=f"{name}.ffn1")
    y = b.node("Add", y, _plain(b, wide, y.channels, 1, name=f"{name}.ffn2"), name=f"{name}.add2")
    return _layer(b, b.node("Concat", left, y, name=f"{name}.concat", axis=1), x.channels, 1, name=f"{name}.cv2")


def _maps(b: Builder, image: Tensor) -> list[Tensor]:
    """Of strides 8, 16 and 32."""
    x = _layer(b, _layer(b, image, 16, 3, stride=2, name="c0"), 32, 3, stride=2, name="c1")
    x = _c3k2(b, x, 64, _bottleneck, share=4, name="c2")
    p3 = _c3k2(b, _layer(b, x, 64, 3, stride=2, name="c3"), 128, _bottleneck, share=4, name="c4")
    p4 = _c3k2(b, _layer(b, p3, 128, 3, stride=2, name="c5"), 128, _c3k, name="c6")
    x = _c3k2(b, _layer(b, p4, 256, 3, stride=2, name="c7"), 256, _c3k, name="c8")
    p5 = c2psa(b, _sppf(b, x, name="c9"), name="c10")
    p4 = _c3k2(b, joined(b, p5, p4, "up4"), 128, _bottleneck, name="c13")
    p3 = _c3k2(b, joined(b, p4, p3, "up3"), 64, _bottleneck, name="c16")
    x = b.node("Concat", _layer(b, p3, 64, 3, stride=2, name="c17"), p4, name="down4.concat", axis=1)
    p4 = _c3k2(b, x, 128, _bottleneck, name="c19")
    x = b.node("Concat", _layer(b, p4, 128, 3, stride=2, name="c20"), p5, name="down5.concat", axis=1)
    return [p3, p4, _c3k2(b, x, 256, _c3k, name="c22")]


def _head(b: Builder, x: Tensor, classes: int, *, name: str) -> Tensor:
    """(N, sides' distances and classes, pixels): two layers for each of both."""
    y = _layer(b, _layer(b, x, 64, 3, name=f"{name}.box0"), 64, 3, name=f"{name}.box1")
    sides = b.biased_conv(y, 4 * _DISTANCES, 1, name=f"{name}.box2")
    y, wide = x, max(64, min(classes, 100))
    for number in range(2):
        y = _layer(b, y, y.channels, 3, groups=y.channels, name=f"{name}.dw{number}")
        y = _layer(b, y, wide, 1, name=f"{name}.pw{number}")
    scores = b.biased_conv(y, classes, 1, name=f"{name}.class")
    found = b.node("Concat", sides, scores, name=f"{name}.concat", axis=1)
    return b.reshape(found, found.channels, found.sample[0, 0].size, name=f"{name}.pixels")


def _boxes(b: Builder, sides: Tensor, maps: Sequence[Tensor]) -> Tensor:
    """Corners (N, boxes, 4) in pixels of the image."""
    boxes = sides.sample.shape[2]
    y = b.reshape(sides, 4, _DISTANCES, boxes, name="decode.sides")
    y = b.node("Softmax", b.transpose(y, 0, 2, 1, 3, name="decode.turned"), name="decode.chances", axis=1)
    mean = floats(np.arange(_DISTANCES)).reshape(1, -1, 1, 1)
    y = b.reshape(b.node("Conv", y, mean, name="decode.mean", kernel_shape=[1, 1]), 4, boxes, name="decode.distances")
    sizes = (tensor.sample.shape[2:] for tensor in maps)
    centres = [np.flip(np.mgrid[:height, :width], axis=0).reshape(2, -1) + 0.5 for height, width in sizes]
    strides = [np.full(centre.shape[1], stride) for centre, stride in zip(centres, _STRIDES, strict=True)]
    centre = floats(np.concatenate(centres, axis=1)[None])
    low = b.node("Sub", centre, b.slice(y, 0, 2, 1, name="decode.before"), name="decode.low")
    high = b.node("Add", centre, b.slice(y, 2, 4, 1, name="decode.behind"), name="decode.high")
    corners = b.node("Concat", low, high, name="decode.corners", axis=1)
    pixels = b.node("Mul", corners, floats(np.concatenate(strides)), name="decode.pixels")
    return b.transpose(pixels, 0, 2, 1, name="boxes")


def _yolo11n(b: Builder, image: Tensor, classes: int) -> None:
    maps = _maps(b, image)
    heads = [_head(b, tensor, classes, name=f"h{stride}") for tensor, stride in zip(maps, _STRIDES, strict=True)]
    found = b.node("Concat", *heads, name="found", axis=2)
    middle = 4 * _DISTANCES
    boxes = _boxes(b, b.slice(found, 0, middle, 1, name="sides"), maps)
    scores = b.slice(found, middle, middle + classes, 1, name="logits")
    detections(b, boxes, b.node("Sigmoid", scores, name="scores"))


NETWORKS = (Network(name="yolo11n", title="YOLO11n", layers=_yolo11n, size=(320, 320), step=32, least=64, classes=80,
                    pictures=16),)
