"""Kernels longer than instructions can name, along one axis: pieces of them over copies of the input."""

from pathlib import Path

import numpy as np
import pytest

from cores.config import NpuConfig
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import on_machine, quantized

#: (outputs, channels of a group, rows, columns) of the weights, (channels, rows, columns) of the input; attributes.
LONG = {
    "columns": ((4, 1, 1, 64), (1, 5, 96), {"pads": [0, 31, 0, 32]}),
    "rows": ((4, 3, 65, 3), (3, 70, 9), {"pads": [2, 1, 2, 1]}),
    "stride": ((4, 6, 1, 80), (6, 1, 150), {"strides": [1, 4]}),
    "three pieces": ((3, 2, 1, 130), (2, 2, 200), {"pads": [0, 64, 0, 65]}),
    "depthwise": ((6, 1, 1, 70), (6, 2, 90), {"group": 6}),
    "groups": ((6, 2, 1, 70), (4, 2, 90), {"group": 2}),
    "dilated": ((4, 3, 2, 40), (3, 4, 99), {"dilations": [1, 2], "pads": [0, 10, 1, 10]}),
    "dilated, of all pixels": ((2, 3, 1, 47), (3, 1, 139), {"dilations": [1, 3], "strides": [1, 8]}),
}


@pytest.mark.parametrize("name", LONG)
def test_results(name: str, rng: np.random.Generator, seed: int, tmp_path: Path) -> None:
    shape, size, attributes = LONG[name]
    b = FloatBuilder(rng, [1, *size])
    x = b.node("Relu", b.same_conv("x", size[0], size[0], kernel=1))
    y = b.node("Conv", x, b.weights(*shape), b.constant(rng.normal(size=shape[0])), **attributes)
    samples = rng.normal(size=(2, *size)).astype(np.float32)
    made = quantized(b.model(y), samples, method="minmax").model
    imported = on_machine(made, samples, NpuConfig.preset(16), seed, tmp_path)
    assert max(max(layer.weights.shape[2:]) for layer in imported.graph.layers if layer.op == "conv") <= 63


def test_of_one_axis(rng: np.random.Generator, seed: int, tmp_path: Path) -> None:
    b = FloatBuilder(rng, [1, 4, 180])
    y = b.node("Conv", b.node("Relu", b.node("Conv", "x", b.weights(4, 4, 1))), b.weights(5, 4, 66), pads=[33, 32])
    samples = rng.normal(size=(2, 4, 180)).astype(np.float32)
    on_machine(quantized(b.model(y), samples, method="minmax").model, samples, NpuConfig.preset(16), seed, tmp_path)


@pytest.mark.parametrize("channels, groups, outputs, layers", [(3, 1, 5, 2), (1, 1, 5, 2), (4, 4, 8, 2), (4, 4, 4, 5)])
def test_of_all_pixels(channels: int, groups: int, outputs: int, layers: int, rng: np.random.Generator, seed: int,
                       tmp_path: Path) -> None:
    """A kernel that covers its input is a matrix product, and stays one layer; not a depthwise one."""
    b = FloatBuilder(rng, [1, channels, 1, 70])
    y = b.node("Conv", b.node("Relu", b.same_conv("x", channels, channels, kernel=1)),
               b.weights(outputs, channels // groups, 1, 70), group=groups)
    samples = rng.normal(size=(2, channels, 1, 70)).astype(np.float32)
    made = quantized(b.model(y), samples, method="minmax").model
    assert len(on_machine(made, samples, NpuConfig.preset(16), seed, tmp_path).graph.layers) == layers
