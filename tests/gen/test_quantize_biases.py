"""Corrected biases and equalised channels: the float model stays, and what is quantised comes nearer to it."""

import numpy as np
import onnx
import pytest

from gen.quantize.bias import with_biases
from gen.quantize.equalize import equalize
from gen.quantize.options import QuantizeOptions
from gen.quantize.prepare import prepare
from gen.quantize.quantize import quantize
from gen.quantize.report import measure
from gen.quantize.sessions import values_of
from tests.gen.float_models import FloatBuilder, depthwise_network, residual_network
from tests.gen.quantizing import outputs_of, quantized

Rng = np.random.Generator


def channel_means(model: onnx.ModelProto, name: str, x: np.ndarray) -> np.ndarray:
    return np.mean([values[name].mean(axis=(0, 2, 3)) for values in values_of(model, [name], {"x": x})], axis=0)


def test_biases_are_corrected(rng: Rng):
    """Means of channels are the float model's, far nearer than before, at a layer in the middle and at the end."""
    x = rng.normal(size=(32, 4, 8, 8)).astype(np.float32)
    model = depthwise_network(rng, 30)
    plain, corrected = (quantized(model, x, per_channel=False, bias_correction=on) for on in (False, True))
    for layer in (plain.plan.layers[2], plain.plan.layers[-1]):
        errors = []
        for found in (plain, corrected):
            output = next(node for node in found.model.graph.node if node.name == layer.node).output[0]
            errors.append(np.abs(channel_means(found.model, output, x)
                                 - channel_means(found.reference, layer.output, x)).max())
        assert errors[1] < errors[0] / 10


def test_a_bias_for_each_layer(rng: Rng):
    samples = rng.normal(size=(24, 3, 12, 12)).astype(np.float32)
    model = prepare(residual_network(rng))
    with_all = with_biases(model)
    assert all(len(node.input) == 3 for node in with_all.graph.node if node.op_type in ("Conv", "Gemm"))
    b = FloatBuilder(rng, [1, 3, 12, 12])
    without = b.model(b.conv("x", 3, 4, pads=[1] * 4, name="y"))
    np.testing.assert_array_equal(outputs_of(with_biases(without), samples), outputs_of(without, samples))


@pytest.mark.slow
@pytest.mark.parametrize("per_channel", [True, False])
def test_equalised_channels(per_channel: bool, rng: Rng):
    """The function stays; what is quantised is nearer to it, of one network more than of another."""
    x = rng.normal(size=(32, 4, 8, 8)).astype(np.float32)
    options = QuantizeOptions(per_channel=per_channel)
    gains = []
    for _ in range(16):
        model = prepare(depthwise_network(rng, 1000))
        expected = outputs_of(model, x)
        # Rounding of single precision is of the largest summands, not of a result in which they cancel out.
        np.testing.assert_allclose(outputs_of(equalize(model, {"x": x}, options), x), expected, rtol=0,
                                   atol=1e-5 * np.abs(expected).max())
        without, equalised = (measure(quantized(model, x, per_channel=per_channel, equalize=on), {"x": x}).outputs["y"]
                              for on in (False, True))
        assert without is not None and equalised is not None
        gains.append(equalised - without)
    assert np.mean(gains) > 3


def test_clips_are_not_equalised_across(rng: Rng):
    """A bound is one for all channels, so a Relu6 does not commute with factors."""
    b = FloatBuilder(rng, [1, 3, 8, 8])
    clipped = b.node("Clip", b.same_conv("x", 3, 8, name="first"), b.constant(np.float32(0)), b.constant(np.float32(1)))
    model = b.model(b.same_conv(clipped, 8, 4, name="y"))
    x = rng.normal(size=(8, 3, 8, 8)).astype(np.float32)
    assert equalize(model, {"x": x}, QuantizeOptions()).SerializeToString() == model.SerializeToString()


def test_equalised_along_one_axis(rng: Rng):
    b = FloatBuilder(rng, [1, 3, 9])
    first, second = b.rng.normal(size=(8, 3, 3)), b.rng.normal(size=(4, 8, 3))
    hidden = b.node("Relu", b.node("Conv", "x", b.constant(first), pads=[1, 1], name="first"))
    model = b.model(b.node("Conv", hidden, b.constant(second), pads=[1, 1], name="y"))
    x = rng.normal(size=(8, 3, 9)).astype(np.float32)
    changed = equalize(model, {"x": x}, QuantizeOptions())
    assert changed.SerializeToString() != model.SerializeToString()
    np.testing.assert_allclose(*(np.concatenate([v["y"] for v in values_of(m, ["y"], {"x": x})])
                                 for m in (model, changed)), atol=1e-5)


def test_biases_of_a_model_that_has_none(rng: Rng):
    b = FloatBuilder(rng, [1, 8])
    model = b.model(b.node("MatMul", "x", b.constant(rng.normal(size=(8, 4))), name="y"))
    x = {"x": rng.normal(size=(20, 8)).astype(np.float32)}
    plain, corrected = (quantize(model, x, QuantizeOptions(bias_correction=on)).model for on in (False, True))
    assert plain.SerializeToString(deterministic=True) == corrected.SerializeToString(deterministic=True)
