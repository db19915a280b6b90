"""SSD on MobileNets, with boxes decoded and selected by ONNX operators."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from gen.zoo.builder import Builder, Tensor, floats
from gen.zoo.detections import detections
from gen.zoo.mobilenet import inverted_layers, separable_layers
from gen.zoo.network import Network

__all__ = ["NETWORKS"]

#: Sides of the prior boxes of the six maps, in images; a map's largest is between its own and the next one's.
_SIDES = (0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 1.0)
#: Width over height of a map's boxes beside the squares; the first map has no larger square and fewer shapes.
_FIRST_ASPECTS, _ASPECTS = (2.0, 1 / 2), (2.0, 1 / 2, 3.0, 1 / 3)
#: What offsets of centres and logarithms of sizes are multiplied by.
_VARIANCES = (0.1, 0.2)


def _sizes() -> Iterator[list[tuple[float, float]]]:
    """Width and height of the boxes of each map, in images."""
    for number, (side, larger) in enumerate(pairwise(_SIDES)):
        aspects = _ASPECTS if number else _FIRST_ASPECTS
        squares = [(side, side)] + ([(np.sqrt(side * larger),) * 2] if number else [])
        yield squares + [(side * np.sqrt(aspect), side / np.sqrt(aspect)) for aspect in aspects]


def _priors(maps: Sequence[Tensor]) -> np.ndarray:
    """(boxes, 4): centre x, y, width and height, in images, in the order of the heads' results."""
    parts = []
    for tensor, sizes in zip(maps, _sizes(), strict=True):
        height, width = tensor.sample.shape[2:]
        y, x = np.meshgrid((np.arange(height) + 0.5) / height, (np.arange(width) + 0.5) / width, indexing="ij")
        centres = np.stack([x, y], axis=-1)[:, :, None].repeat(len(sizes), axis=2)
        parts.append(np.concatenate([centres, np.broadcast_to(sizes, centres.shape)], axis=-1).reshape(-1, 4))
    return np.concatenate(parts).astype(np.float32)


def _head(b: Builder, maps: Sequence[Tensor], kind: str, values: int, kernel: int) -> Tensor:
    """(N, boxes, values) of all maps."""
    parts = []
    for number, (tensor, sizes) in enumerate(zip(maps, _sizes(), strict=True)):
        name = f"{kind}{number}"
        part = b.biased_conv(tensor, len(sizes) * values, kernel, name=name)
        part = b.transpose(part, 0, 2, 3, 1, name=f"{name}.transpose")
        parts.append(b.node("Reshape", part, np.array([0, -1, values]), name=f"{name}.reshape"))
    return b.node("Concat", *parts, name=kind, axis=1)


def _boxes(b: Builder, offsets: Tensor, priors: np.ndarray) -> Tensor:
    """Corners (x1, y1, x2, y2) in images of boxes that are given as offsets from the prior ones."""
    centres, sizes = priors[None, :, :2], priors[None, :, 2:]
    moved = b.node("Mul", b.slice(offsets, 0, 2, 2, name="offset"), floats(_VARIANCES[0] * sizes), name="offset.scaled")
    centre = b.node("Add", moved, centres, name="centre")
    scaled = b.node("Mul", b.slice(offsets, 2, 4, 2, name="growth"), floats(_VARIANCES[1]), name="growth.scaled")
    half = b.node("Mul", b.node("Exp", scaled, name="growth.exp"), sizes / 2, name="half")
    corners = b.node("Sub", centre, half, name="low"), b.node("Add", centre, half, name="high")
    return b.node("Concat", *corners, name="boxes", axis=2)


def _v1(b: Builder, image: Tensor) -> list[Tensor]:
    """The maps of strides 16 and 32 that MobileNetV1 has."""
    pairs = separable_layers(b, image)
    return [pairs[10], pairs[12]]


def _v2(b: Builder, image: Tensor) -> list[Tensor]:
    """Those of MobileNetV2: of the finer one the wide middle of the block after it (Sandler et al., section 6.2)."""
    x, middles = inverted_layers(b, image)
    return [middles[13], x]


def _ssd(b: Builder, image: Tensor, classes: int, *, kernel: int,
         backbone: Callable[[Builder, Tensor], list[Tensor]] = _v1) -> None:
    """Liu et al. (2016) on a ``backbone``, with heads of ``kernel``; class 0 is the background."""
    maps = backbone(b, image)
    x = maps[-1]
    for number, (middle, channels) in enumerate(((256, 512), (128, 256), (128, 256), (64, 128)), start=14):
        x = b.relu6(b.norm(b.conv(x, middle, 1, name=f"conv{number}_1")))
        x = b.relu6(b.norm(b.conv(x, channels, 3, stride=2, name=f"conv{number}_2")))
        maps.append(x)
    boxes = _boxes(b, _head(b, maps, "loc", 4, kernel), _priors(maps))
    chances = b.node("Softmax", _head(b, maps, "conf", classes, kernel), name="chances", axis=2)
    turned = b.transpose(chances, 0, 2, 1, name="chances.transpose")
    scores = b.slice(turned, 1, classes, 1, name="scores")
    detections(b, boxes, scores)


_network = partial(Network, size=(300, 300), classes=21)

NETWORKS = (
    _network(name="ssd-mobilenetv1", title="SSD-MobileNetV1", layers=partial(_ssd, kernel=1)),
    _network(name="ssd-mobilenetv1-3x3", title="SSD-MobileNetV1, heads of 3x3", layers=partial(_ssd, kernel=3)),
    _network(name="ssd-mobilenetv2", title="SSD-MobileNetV2", layers=partial(_ssd, kernel=1, backbone=_v2)),
)
