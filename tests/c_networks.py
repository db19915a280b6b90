"""Whole networks with what follows their heads, for models in C: weights are drawn from a seed, as the zoo's are.

* ``ssd``: SSD-MobileNetV1 with boxes decoded and selected (NonMaxSuppression);
* ``yolo``: YOLOv3-tiny with the same;
* ``silu``: convolutions with SiLU between them, of which a machine without tables leaves each to the processor;
* ``autoencoder``: the fully connected layers of MLPerf Tiny's anomaly detection.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx

from gen.quantize.options import QuantizeOptions
from gen.quantize.quantize import quantize
from gen.zoo.builder import Builder, Tensor, floats, pictures
from gen.zoo.network import make
from gen.zoo.registry import NETWORKS
from gen.zoo.yolo import NETWORKS as YOLO

__all__ = ["NETWORKS_OF_C", "made_network"]

#: Width and height of YOLOv3-tiny's boxes in pixels of 416x416: of the coarse map and of the fine one.
_ANCHORS = (((81, 82), (135, 169), (344, 319)), ((10, 14), (23, 27), (37, 58)))
_NUMBERS, _IMAGE = 5, 416
_SELECTED, _OVERLAP, _SCORE = 20, 0.45, 0.5


class _Heads(Builder):
    """Keeps what a network calls its outputs."""

    def __init__(self, *, name: str, seed: int) -> None:
        super().__init__(name=name, seed=seed)
        self.heads: list[Tensor] = []

    def output(self, tensor: Tensor, *, samples: bool = True) -> None:
        self.heads.append(tensor)

    def result(self, tensor: Tensor, *, samples: bool = True) -> None:
        super().output(tensor, samples=samples)


def _slice(b: Builder, x: Tensor, start: int, end: int, name: str) -> Tensor:
    return b.node("Slice", x, *(np.array([number]) for number in (start, end, -1)), name=name)


def _decoded(b: Builder, head: Tensor, anchors: Sequence[tuple[int, int]], name: str) -> tuple[Tensor, Tensor]:
    """Corners (N, boxes, 4) in images and scores (N, boxes, classes), by Redmon and Farhadi (2018)."""
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
    half = b.node("Mul", half, floats(np.array(anchors)[:, None, None] / _IMAGE / 2), name=f"{name}.half")
    corners = b.node("Concat", b.node("Sub", centre, half, name=f"{name}.low"),
                     b.node("Add", centre, half, name=f"{name}.high"), name=f"{name}.corners", axis=-1)
    chances = b.node("Sigmoid", _slice(b, x, 4, values, f"{name}.chances"), name=f"{name}.sigmoid")
    scores = b.node("Mul", _slice(b, chances, 0, 1, f"{name}.object"), _slice(b, chances, 1, values, f"{name}.class"),
                    name=f"{name}.scores")
    count = values - _NUMBERS
    return (b.node("Reshape", corners, np.array([0, -1, 4]), name=f"{name}.boxes"),
            b.node("Reshape", scores, np.array([0, -1, count]), name=f"{name}.rows"))


def _yolo(seed: int, size: tuple[int, int]) -> onnx.ModelProto:
    network = next(one for one in YOLO if one.name == "yolov3-tiny")
    b = _Heads(name="yolov3-tiny-boxes", seed=seed)
    network.layers(b, b.image((3, *size), 1), 4)
    parts = [_decoded(b, head, anchors, f"map{number}")
             for number, (head, anchors) in enumerate(zip(b.heads, _ANCHORS, strict=True))]
    boxes = b.node("Concat", *(part[0] for part in parts), name="boxes", axis=1)
    rows = b.node("Concat", *(part[1] for part in parts), name="rows", axis=1)
    scores = b.node("Transpose", rows, name="scores", perm=[0, 2, 1])
    limits = np.array([_SELECTED]), floats([_OVERLAP]), floats([_SCORE])
    b.result(boxes)
    b.result(scores)
    b.result(b.node("NonMaxSuppression", boxes, scores, *limits, name="selected"), samples=False)
    return b.model


def _ssd(seed: int, size: tuple[int, int]) -> onnx.ModelProto:
    network = next(one for one in NETWORKS.values() if one.name == "ssd-mobilenetv1")
    return make(network, seed=seed, size=size, classes=4).model


def _silu(seed: int, size: tuple[int, int]) -> onnx.ModelProto:
    b = Builder(name="silu", seed=seed)
    x = b.image((3, *size), 1)
    for number in range(5):
        x = b.norm(b.conv(x, 8, 3, stride=2 if number == 0 else 1, name=f"conv{number}"))
        x = b.node("Mul", x, b.node("Sigmoid", x, name=f"sigmoid{number}"), name=f"silu{number}")
    b.classify(x, 10)
    return b.model


def _autoencoder(seed: int, size: tuple[int, int]) -> onnx.ModelProto:
    b = Builder(name="autoencoder", seed=seed)
    x = b.image((1, *size), 1)
    widths = (128, 128, 128, 128, 8, 128, 128, 128, 128)
    for number, width in enumerate(widths):
        x = b.relu(b.dense(x, width, name=f"fc{number}"))
    b.output(b.dense(x, size[0] * size[1], name="fc9"))
    return b.model


#: Name -> the float model of a seed and a size, its channels and size.
NETWORKS_OF_C: dict[str, tuple[Callable[[int, tuple[int, int]], onnx.ModelProto], tuple[int, int, int]]] = {
    "ssd": (_ssd, (3, 96, 96)),
    "yolo": (_yolo, (3, 96, 96)),
    "silu": (_silu, (3, 16, 16)),
    "autoencoder": (_autoencoder, (1, 5, 128)),
}


def made_network(name: str, folder: Path, *, seed: int = 0) -> Path:
    """``folder``/NAME.onnx, quantised on seeded pictures; those of NAME@N are of N x N in place of the usual size."""
    base, _, edge = name.partition("@")
    function, (channels, *usual) = NETWORKS_OF_C[base]
    size = (int(edge), int(edge)) if edge else (usual[0], usual[1])
    samples = pictures(np.random.default_rng(seed), 4, (channels, *size))
    path = folder / f"{name}.onnx"
    path.write_bytes(quantize(function(seed, size), {"image": samples}, QuantizeOptions()).model.SerializeToString())
    return path
