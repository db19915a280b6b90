"""Normalisations over pixels become layers: the same numbers, and all of it on a machine with tables and products."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from cores.config import NpuConfig
from gen.quantize.balance_norms import balance_norms
from gen.quantize.prepare import prepare
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import on_machine, outputs_of, quantized

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
    model = network(rng, norm)
    x = rng.normal(size=(16, 3, SIDE, SIDE)).astype(np.float32)
    found = quantized(model, x, method="minmax")
    on_machine(found.model, x, CONFIG, seed, tmp_path)
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


def _unlike(rng: Rng, norm) -> tuple[onnx.ModelProto, np.ndarray]:
    """Channels of very different sizes and means, as trained networks have them in front of a normalisation."""
    model = network(rng, norm)
    first = next(node for node in model.graph.node if node.name == "first")
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    weights, bias = (numpy_helper.to_array(constants[name]) for name in first.input[1:])
    groups = 2 if norm is pytorch else CHANNELS
    sizes = np.repeat(np.exp(rng.permutation(np.linspace(-3, 3, groups))), CHANNELS // groups).astype(np.float32)
    for name, array in zip(first.input[1:], (weights * sizes.reshape(-1, 1, 1, 1), (bias + 3) * sizes), strict=True):
        constants[name].CopyFrom(numpy_helper.from_array(array, name))
    return model, rng.normal(size=(16, 3, SIDE, SIDE)).astype(np.float32)


@pytest.mark.parametrize("norm", [instance, pytorch, tokens])
def test_channels_of_different_sizes(norm, rng: Rng) -> None:
    """A layer in front leaves them equal: without that, 2 to 4 dB of instances are left, and 15 of groups."""
    model, x = _unlike(rng, norm)
    expected, found = (outputs_of(each, x) for each in (model, quantized(model, x, method="minmax").model))
    assert 10 * np.log10((expected**2).sum() / ((found - expected)**2).sum()) > 25


@pytest.mark.parametrize("norm", [instance, pytorch, tokens])
def test_balanced_numbers(norm, rng: Rng) -> None:
    model, x = _unlike(rng, norm)
    made = balance_norms(prepare(model), {"x": x})
    assert {node.name for node in made.graph.node} == {node.name for node in prepare(model).graph.node}
    assert made.SerializeToString() != prepare(model).SerializeToString()
    expected = outputs_of(model, x)
    np.testing.assert_allclose(outputs_of(made, x), expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    kept = balance_norms(prepare(model), {"x": x}, {"first"})
    assert next(node for node in kept.graph.node if node.name == "first") in prepare(model).graph.node


@pytest.mark.parametrize("apart", [False, True])
def test_what_others_read(apart: bool, rng: Rng) -> None:
    """A layer's result beside its normalisation stays as it is; channels that are far apart get a copy."""
    b = FloatBuilder(rng, [1, 3, SIDE, SIDE], opset=17)
    sizes = np.exp(rng.permutation(np.linspace(-3, 3, CHANNELS))) if apart else np.ones(CHANNELS)
    x = b.node("Mul", b.same_conv("x", 3, CHANNELS, name="first"), b.constant(sizes.reshape(-1, 1, 1)))
    y = b.node("Concat", b.same_conv(x, CHANNELS, CHANNELS), instance(b, x), axis=1)
    model = b.model(b.same_conv(y, 2 * CHANNELS, 4, kernel=1, name="y"), rank=4)
    made, x = prepare(model), rng.normal(size=(16, 3, SIDE, SIDE)).astype(np.float32)
    balanced = balance_norms(made, {"x": x})
    assert (balanced is made) != apart
    expected = outputs_of(model, x)
    np.testing.assert_allclose(outputs_of(balanced, x), expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    found = outputs_of(quantized(model, x, method="minmax").model, x)
    assert 10 * np.log10((expected**2).sum() / ((found - expected)**2).sum()) > 10


@pytest.mark.parametrize("norm", ["instance", "pytorch"])
def test_outputs_within_a_norm(norm: str, rng: Rng) -> None:
    """What a Reshape or a Mul after it reads may be a result of the model, too."""
    b = FloatBuilder(rng, [1, 3, SIDE, SIDE])
    x = b.same_conv("x", 3, CHANNELS)
    if norm == "pytorch":
        pytorch(b, x)
        value = next(node.output[0] for node in b.nodes if node.op_type == "InstanceNormalization")
    else:
        value = b.node("InstanceNormalization", x, *(b.constant(make(CHANNELS)) for make in (np.ones, np.zeros)))
        b.node("Mul", value, b.constant(rng.normal(size=(CHANNELS, 1, 1))))
    model = b.model(b.same_conv(b.nodes[-1].output[0], CHANNELS, 4, name="y"), rank=4)
    model.graph.output.insert(0, onnx.helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, None))
    x = rng.normal(size=(1, 3, SIDE, SIDE)).astype(np.float32)
    np.testing.assert_allclose(outputs_of(prepare(model), x), outputs_of(model, x), rtol=0, atol=1e-4)


@pytest.mark.parametrize("reads", ["deviation", "inverse", "mean", "mixed"])
def test_what_else_reads_of_a_norm(reads: str, rng: Rng) -> None:
    """Means and deviations of channels are something for themselves, as of styles."""
    b = FloatBuilder(rng, [1, 3, SIDE, SIDE])
    x = b.same_conv("x", 3, CHANNELS)
    mean = b.node("GlobalAveragePool", x)
    less = b.node("Sub", x, mean)
    spread = b.node("GlobalAveragePool", b.node("Mul", less, less))
    root = b.node("Sqrt", b.node("Add", spread, b.constant(np.float32(1e-5))))
    inverse = b.node("Reciprocal", root)
    of_each = b.same_conv({"deviation": root, "mean": mean}.get(reads, inverse), CHANNELS, CHANNELS, kernel=1)
    y = b.node("Mul", less, of_each if reads == "mixed" else inverse)
    y = y if reads == "mixed" else b.node("Add", y, of_each)
    model = b.model(b.same_conv(y, CHANNELS, 4, kernel=1, name="y"), rank=4)
    x = rng.normal(size=(4, 3, SIDE, SIDE)).astype(np.float32)
    expected = outputs_of(model, x)
    found = outputs_of(balance_norms(prepare(model), {"x": x}), x)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_a_dead_channel(rng: Rng) -> None:
    """A constant has the inverse root of epsilon as its factor, beside which others would have few steps."""
    model = network(rng, instance)
    weights = next(tensor for tensor in model.graph.initializer if tensor.name == model.graph.node[0].input[1])
    array = numpy_helper.to_array(weights).copy()
    array[2] = 0
    weights.CopyFrom(numpy_helper.from_array(array, weights.name))
    x = rng.normal(size=(16, 3, SIDE, SIDE)).astype(np.float32)
    expected, found = (outputs_of(each, x) for each in (model, quantized(model, x, method="minmax").model))
    assert 10 * np.log10((expected**2).sum() / ((found - expected)**2).sum()) > 28
