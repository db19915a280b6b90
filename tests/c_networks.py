"""Whole networks with what follows their heads, for models in C: weights are drawn from a seed, as the zoo's are.

* ``ssd``: SSD-MobileNetV1 with boxes decoded and selected (NonMaxSuppression);
* ``yolo``: YOLOv3-tiny with the same;
* ``silu``: convolutions with SiLU between them, of which a machine without tables leaves each to the processor;
* ``autoencoder``: the fully connected layers of MLPerf Tiny's anomaly detection.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

from gen.quantize.options import QuantizeOptions
from gen.quantize.quantize import quantize
from gen.zoo.builder import Builder, floats, pictures
from gen.zoo.network import make
from gen.zoo.registry import NETWORKS
from gen.zoo.yolo import TINY_ANCHORS, decoded, tiny_heads

__all__ = ["NETWORKS_OF_C", "made_network"]

_SELECTED, _OVERLAP, _SCORE = 20, 0.45, 0.5


def _yolo(seed: int, size: tuple[int, int]) -> onnx.ModelProto:
    b = Builder(name="yolov3-tiny-boxes", seed=seed)
    heads = tiny_heads(b, b.image((3, *size), 1), 4)
    parts = [decoded(b, head, anchors, f"map{number}")
             for number, (head, anchors) in enumerate(zip(heads, TINY_ANCHORS, strict=True))]
    boxes = b.node("Concat", *(part[0] for part in parts), name="boxes", axis=1)
    rows = b.node("Concat", *(part[1] for part in parts), name="rows", axis=1)
    scores = b.node("Transpose", rows, name="scores", perm=[0, 2, 1])
    limits = np.array([_SELECTED]), floats([_OVERLAP]), floats([_SCORE])
    b.output(boxes)
    b.output(scores)
    b.output(b.node("NonMaxSuppression", boxes, scores, *limits, name="selected"), samples=False)
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
    made = quantize(function(seed, size), {"image": samples}, QuantizeOptions(method="mse"))
    path.write_bytes(made.model.SerializeToString())
    return path
