"""Normalisations over pixels become layers: the same numbers, and all of it on a machine with tables and products."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from cores.config import NpuConfig
from gen.check.compare import compare_model
from gen.onnx.importer import load_model
from gen.onnx.machine import Machine
from gen.quantize.prepare import prepare
from tests.compiled import compile_kept
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import outputs_of, quantized
from tests.gen.test_compiler import run_and_compare

Rng = np.random.Generator
CONFIG = NpuConfig.preset(64, product=1, table=1)
CHANNELS, SIDE = 12, 6


def instance(b: FloatBuilder, x: str) -> str:
    return b.node("InstanceNormalization", x, b.constant(b.rng.normal(1, 0.5, CHANNELS)),
                  b.constant(b.rng.normal(size=CHANNELS)))


def group(b: FloatBuilder, x: str) -> str:
    scale, bias = (b.constant(b.rng.normal(1, 0.5, CHANNELS)) for _ in range(2))
    return b.node("GroupNormalization", x, scale, bias, num_groups=3, epsilon=1e-3)


def pytorch(b: FloatBuilder, x: str) -> str:
    """A GroupNorm, as PyTorch exports it."""
    y = b.node("Reshape", x, b.constant(np.array([0, 2, -1])))
    y = b.node("InstanceNormalization", y, b.constant(np.ones(2)), b.constant(np.zeros(2)))
    y = b.node("Reshape", y, b.constant(np.array([1, CHANNELS, SIDE, SIDE])))
    y = b.node("Mul", y, b.constant(b.rng.normal(1, 0.5, (CHANNELS, 1, 1))))
    return b.node("Add", y, b.constant(b.rng.normal(size=(CHANNELS, 1, 1))))


def tokens(b: FloatBuilder, x: str) -> str:
    """Of one spatial axis."""
    y = b.node("Reshape", x, b.constant(np.array([0, CHANNELS, -1])))
    return b.node("Reshape", instance(b, y), b.constant(np.array([1, CHANNELS, SIDE, SIDE])))


def all_axes(b: FloatBuilder, x: str) -> str:
    """Of a sample, with a scale and a bias for each value."""
    shape = CHANNELS, SIDE, SIDE
    scale, bias = b.constant(b.rng.normal(1, 0.5, shape)), b.constant(b.rng.normal(size=shape))
    return b.node("LayerNormalization", x, scale, bias, axis=1)


def pixels(b: FloatBuilder, x: str) -> str:
    """Of each channel, with a scale for each pixel."""
    return b.node("LayerNormalization", x, b.constant(b.rng.normal(1, 0.5, (SIDE, SIDE))), axis=-2, epsilon=1e-3)


def one_scale(b: FloatBuilder, x: str) -> str:
    return b.node("LayerNormalization", x, b.constant(np.full((CHANNELS, SIDE, SIDE), 1.5)), axis=-3)


def squares(b: FloatBuilder, x: str) -> str:
    """Of a sample, without its mean."""
    b.opset = 23
    return b.node("RMSNormalization", x, b.constant(b.rng.normal(1, 0.5, (CHANNELS, SIDE, SIDE))), axis=1)


def network(rng: Rng, norm, opset: int = 21) -> onnx.ModelProto:
    b = FloatBuilder(rng, [1, 3, SIDE, SIDE], opset=opset)
    x = norm(b, b.same_conv("x", 3, CHANNELS, name="first"))
    return b.model(b.same_conv(x, CHANNELS, 4, kernel=1, name="y"), rank=4)


@pytest.mark.parametrize("norm", [instance, group, pytorch, tokens, all_axes, pixels, one_scale, squares])
def test_numbers(norm, rng: Rng) -> None:
    model = network(rng, norm)
    x = rng.normal(size=(3, 3, SIDE, SIDE)).astype(np.float32)
    made = prepare(model)
    assert not {node.op_type for node in made.graph.node} & {
        "InstanceNormalization", "GroupNormalization", "LayerNormalization", "RMSNormalization"}
    np.testing.assert_allclose(outputs_of(made, x), outputs_of(model, x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("norm", [instance, pytorch, all_axes, pixels, squares])
def test_on_the_machine(norm, rng: Rng, seed: int, tmp_path: Path) -> None:
    """One graph, whose layers are onnxruntime's but for a step, and close to the float model."""
    model = network(rng, norm)
    x = rng.normal(size=(16, 3, SIDE, SIDE)).astype(np.float32)
    found = quantized(model, x, method="minmax")
    (tmp_path / "m.onnx").write_bytes(found.model.SerializeToString())
    imported = load_model(tmp_path / "m.onnx", machine=Machine.of(CONFIG))
    report = compare_model(imported, {"x": x[:2]})
    assert max(row.largest for row in report.layers) <= 1
    run_and_compare(*compile_kept(imported.graph, CONFIG), seed, ("load", "store"))
    expected = outputs_of(model, x)
    assert np.abs(outputs_of(found.model, x) - expected).mean() < 0.03 * np.abs(expected).max()


def test_reshapes_of_samples_are_no_groups(rng: Rng) -> None:
    """Channels that a Reshape makes samples of stay as they are."""
    b = FloatBuilder(rng, [1, 3, SIDE, SIDE])
    x = b.same_conv("x", 3, CHANNELS, name="first")
    y = b.node("Reshape", x, b.constant(np.array([2, CHANNELS // 2, -1])))
    y = b.node("InstanceNormalization", y, *(b.constant(np.ones(CHANNELS // 2)) for _ in range(2)))
    y = b.node("Reshape", y, b.constant(np.array([1, CHANNELS, SIDE, SIDE])))
    model = b.model(b.same_conv(y, CHANNELS, 4, kernel=1, name="y"), rank=4)
    x = rng.normal(size=(1, 3, SIDE, SIDE)).astype(np.float32)
    np.testing.assert_allclose(outputs_of(prepare(model), x), outputs_of(model, x), rtol=0, atol=1e-5)
