"""Operators that carry their scales, and slopes for each channel: against onnxruntime, and on the simulator."""

from pathlib import Path

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.check.compare import compare_model
from gen.ir import reference
from gen.ir.errors import GraphError
from gen.onnx.importer import load_model
from gen.onnx.machine import Machine
from gen.onnx.read import read
from gen.partition.partition import partition
from tests.compiled import compile_kept
from tests.errors import is_about
from tests.gen.qdq import Builder
from tests.gen.test_compiler import run_and_compare

Rng = np.random.Generator
CONFIG = NpuConfig.preset(16, product=1, table=1)
MICROSOFT = "com.microsoft"


def simulated(b: Builder, folder: Path, seed: int) -> tuple[list[str], int]:
    """The model without a layer more than an LSB off; what its layers are, and how many values of the last differ."""
    imported = load_model(b.save(folder), machine=Machine.of(CONFIG))
    comparison = compare_model(imported, b.samples())
    assert comparison.largest <= 1
    run_and_compare(*compile_kept(imported.graph, CONFIG), seed, ("load", "store"))
    return [layer.op for layer in imported.graph.layers], comparison.layers[-1].differing


@pytest.mark.parametrize("number", [np.int8, np.uint8])
def test_sigmoid(number: type, rng: Rng, seed: int, tmp_path: Path) -> None:
    """A table, in the layer in front of it, with every value of onnxruntime."""
    b = Builder(rng, number=number)
    x, scale, point = b.input(1, 4, 8, 32), b.scale(0.05), b.point(None)
    # Narrow: onnxruntime's QLinearConv of uint8 saturates sums of two products on processors without those of 8 bits.
    weights = b.constant(rng.integers(-64, 65, (8, 4, 1, 1)).astype(np.int8))
    parameters = b.scale(0.004), b.constant(np.int8(0))
    y = b.node("QLinearConv", x, scale, point, weights, *parameters, scale, point)
    b.output(b.node("QLinearSigmoid", y, scale, point, b.scale(1 / 256), b.point(None), domain=MICROSOFT))
    assert simulated(b, tmp_path, seed) == (["conv"], 0)
    with pytest.raises(GraphError, match=r"\(com.microsoft.QLinearSigmoid\): .* --features table puts on the accel"):
        load_model(tmp_path / "model.onnx")
    assert partition(read(tmp_path / "model.onnx")).subgraphs == 1


@pytest.mark.parametrize("number", [np.int8, np.uint8])
def test_silu(number: type, rng: Rng, seed: int, tmp_path: Path) -> None:
    """x * Sigmoid(x) is one table, as it is between other quantisations."""
    b = Builder(rng, number=number)
    scales = [(b.scale(s), b.point(None)) for s in (0.05, 1 / 256, 0.043)]
    x = b.input(1, 4, 8, 32)
    y = b.node("QLinearSigmoid", x, *scales[0], *scales[1], domain=MICROSOFT)
    b.output(b.node("QLinearMul", x, *scales[0], y, *scales[1], *scales[2], domain=MICROSOFT))
    assert simulated(b, tmp_path, seed) == (["pool"], 0)


@pytest.mark.parametrize("number", [np.int8, np.uint8])
def test_products(number: type, rng: Rng, seed: int, tmp_path: Path) -> None:
    """Of two tensors; with a constant for each channel."""
    b = Builder(rng, number=number)
    x, y = b.input(1, 6, 9, 7), b.input(1, 6, 9, 7, name="y")
    scales = [(b.scale(s), b.point(None)) for s in (0.05, 0.031, 0.043)]
    z = b.node("QLinearMul", x, *scales[0], y, *scales[1], *scales[2], domain=MICROSOFT)
    limits = np.iinfo(number)
    # Of both signs, after any zero point: else they are no weights.
    factors = np.array([limits.min, limits.max, *rng.integers(limits.min, limits.max + 1, 4)])
    c = b.constant(factors.reshape(6, 1, 1).astype(number))
    b.output(b.node("QLinearMul", z, *scales[2], c, *scales[1], *scales[0], domain=MICROSOFT))
    kinds, differing = simulated(b, tmp_path, seed)
    assert kinds == ["pool", "conv"] and differing < 20


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize("least", [0, -1])
def test_slopes_for_each_channel(number: type, least: float, rng: Rng, seed: int, tmp_path: Path) -> None:
    """Rounded once: every value is onnxruntime's, but for ties, also with slopes of zero and above one."""
    b = Builder(rng, number=number)
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 9, 9)), b.weights(20, 3, 3, 3)))
    slopes = rng.uniform(least, 1.5, (20, 1, 1)).astype(np.float32)
    slopes[:2, 0, 0] = 0, 1.37
    b.output(b.quantize(b.node("PRelu", x, b.constant(slopes)), 0.037))
    kinds, differing = simulated(b, tmp_path, seed)
    # One of zero is a weight of zero, so what the slopes belong to is a depthwise layer.
    assert kinds == ["conv", *["pool"] * (1 if least == 0 else 2), "conv"]
    assert differing <= 2


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize("scale, layers", [(0.06, ["conv", "conv"]), (0.002, ["conv", "pool", "pool", "conv"])])
def test_slopes_up_to_one(number: type, scale: float, layers: list[str], rng: Rng, seed: int, tmp_path: Path) -> None:
    """A layer; more where what it adds would be rounded to too few steps of the result."""
    b = Builder(rng, number=number)
    x = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 9, 9)), b.weights(20, 3, 3, 3)), 0.05)
    slopes = rng.uniform(-1, 1, (20, 1, 1)).astype(np.float32)
    slopes[:3, 0, 0] = 0, 1, -1
    b.output(b.quantize(b.node("PRelu", x, b.constant(slopes)), scale))
    kinds, differing = simulated(b, tmp_path, seed)
    assert kinds == layers
    assert differing <= (0.25 * 3 * 980 if len(layers) == 2 else 4)


@pytest.mark.parametrize("step", [0.02, 0.05, 0.061, 0.4])
def test_every_value_with_slopes_up_to_one(step: float, rng: Rng, tmp_path: Path) -> None:
    """Within the rounding of what is added, to 9 bits, of the exact number."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 5, 16, 16), 0.05, -20)
    slopes = np.float32([0.25, -0.7, 0, 1, 0.01])
    b.output(b.quantize(b.node("PRelu", x, b.constant(slopes[:, None, None])), step, 9))
    values = np.tile(np.arange(-128, 128, dtype=np.int8).reshape(16, 16), (1, 5, 1, 1))
    (ours,) = reference.run(load_model(b.save(tmp_path)).graph, {"x": values})[0].values()
    real = (values + 20.0) * 0.05
    exact = np.where(real < 0, real * slopes[:, None, None], real) / step + 9
    # Up to 1.7 * 108 steps of the tensor are in 511 steps.
    assert np.abs(ours - np.clip(exact, -128, 127)).max() <= 0.502 + 1.7 * 108 * 0.05 / 511 / 2 / step


def test_slopes_of_every_value(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    x = b.dequantize(b.input(1, 5, 16, 16), 0.05, -20)
    slopes = np.float32([0.25, -0.7, 0, 3, 0.01])
    b.output(b.quantize(b.node("PRelu", x, b.constant(slopes[:, None, None])), 0.061, 9))
    values = np.tile(np.arange(-128, 128, dtype=np.int8).reshape(16, 16), (1, 5, 1, 1))
    (ours,) = reference.run(load_model(b.save(tmp_path)).graph, {"x": values})[0].values()
    real = (values + 20.0) * 0.05
    exact = np.where(real < 0, real * slopes[:, None, None], real) / 0.061 + 9
    assert np.abs(ours - np.clip(exact, -128, 127)).max() <= 0.501


@pytest.mark.parametrize("domain", ["", MICROSOFT])
def test_averages_without_padding_are_the_processors(domain: str, rng: Rng, tmp_path: Path) -> None:
    """Windows at the edge have fewer values: refused, and left to the processor with its reason."""
    b = Builder(rng)
    x, scale, point = b.input(1, 4, 8, 8), b.scale(0.05), b.point(3)
    weights, window = b.weights(4, 4, 3, 3), dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    y = b.node("QuantizeLinear", b.node("Conv", b.node("DequantizeLinear", x, scale, point), weights), scale, point)
    if domain:
        y = b.node("QLinearAveragePool", y, scale, point, scale, point, domain=domain, **window)
    else:
        y = b.node("AveragePool", b.node("DequantizeLinear", y, scale, point), **window)
        y = b.node("QuantizeLinear", y, scale, point)
    z = b.node("Conv", b.node("DequantizeLinear", y, scale, point), b.weights(4, 4, 3, 3))
    b.output(b.quantize(z))
    cut = partition(read(b.save(tmp_path)))
    (reason,) = cut.host.values()
    assert cut.subgraphs == 2
    is_about(reason, "unsupported-form", attribute="count_include_pad")
