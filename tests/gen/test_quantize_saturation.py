"""Ranges of what saturating functions alone read: logits of any size take no steps from those near zero."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gen.quantize.quantize import Quantized
from gen.quantize.report import measure
from gen.quantize.saturation import saturation
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import outputs_of, quantized

Rng = np.random.Generator
#: How large the weight of the first channel is.
LARGER = 3000


def drawn(rng: Rng) -> np.ndarray:
    """Samples, 24 x 16, whose first value is so far from zero that no rounding changes its sign."""
    x = rng.normal(size=(24, 16)).astype(np.float32)
    x[:, 0] += np.copysign(np.float32(0.5), x[:, 0])
    return x


def weights_of(rng: Rng) -> np.ndarray:
    """Of 6 channels, the first of which is certain: it is the first value of a sample, only much larger."""
    weights = (rng.normal(size=(6, 16)) / 2).astype(np.float32)
    weights[0] = LARGER * np.eye(1, 16)
    return weights


def network(rng: Rng, end: str) -> onnx.ModelProto:
    """Logits of 6 channels, the first of which is certain, and how a model goes on with them."""
    b = FloatBuilder(rng, [1, 16])
    logits = b.node("Gemm", "x", b.constant(weights_of(rng)), name="logits", transB=1)
    match end:
        case "Sigmoid" | "Tanh":
            y = b.node(end, logits)
        case "moved":
            shape = b.constant(np.int64([0, 2, 3]))
            y = b.node("Sigmoid", b.node("Concat", *[b.node("Reshape", logits, shape)] * 2, axis=2))
        case "SiLU":
            y = b.node("Mul", logits, b.node("Sigmoid", logits))
        case "output":
            y = b.node("Sigmoid", logits)
    model = b.model(y)
    if end == "output":
        model.graph.output.append(helper.make_tensor_value_info(logits, TensorProto.FLOAT, [1, 6]))
    return model


def scale_of_logits(found: Quantized) -> float:
    constants = {tensor.name: tensor for tensor in found.model.graph.initializer}
    name = next(layer.output for layer in found.plan.layers if layer.node == "logits")
    return float(numpy_helper.to_array(constants[f"{name}_scale"]))


@pytest.mark.parametrize("method", ["minmax", "mse"])
@pytest.mark.parametrize("end, reach, decibels", [("Sigmoid", 16, 35), ("moved", 16, 35), ("Tanh", 8, 25)])
def test_what_is_beyond_needs_no_steps(end: str, reach: float, decibels: float, method: str, rng: Rng) -> None:
    x = drawn(rng)
    found = quantized(network(rng, end), x, method=method)
    assert scale_of_logits(found) == pytest.approx(reach / 255)
    wanted, made = outputs_of(found.reference, x), outputs_of(found.model, x)
    assert np.square(made - wanted).sum() < np.square(wanted).sum() / 10 ** (decibels / 10)
    (row,) = (row for row in measure(found, {"x": x}).layers if row.layer == "logits")
    assert row.sqnr_db is not None and row.sqnr_db > 25     # within the range


@pytest.mark.parametrize("end", ["SiLU", "output"])
def test_what_else_reads_them_needs_all(end: str, rng: Rng) -> None:
    x = drawn(rng)
    found = quantized(network(rng, end), x, method="minmax")
    assert scale_of_logits(found) > LARGER / 255


def test_small_ones_stay_as_they_are(rng: Rng) -> None:
    """A limit is none for samples that do not reach it."""
    x = drawn(rng) / 1e5
    found = quantized(network(rng, "Sigmoid"), x, method="minmax")
    assert 0 < scale_of_logits(found) < 1 / 255


def test_a_value_that_is_moved_first_and_then_read(rng: Rng) -> None:
    """What a node gives its readers is known before its own operands are looked at, whatever the order of readers."""
    b = FloatBuilder(rng, [1, 4])
    moved = b.node("Reshape", "x", b.constant(np.int64([0, 2, 2])))
    kept = b.node("Relu", moved)
    y = b.node("Add", b.node("Flatten", kept), b.node("Sigmoid", "x"))
    assert saturation(b.model(y), {}) == {}


def test_summands_reach_as_far_as_the_other_brings_them_back(rng: Rng) -> None:
    """As the gates of an LSTM are sums: of what is certain a summand needs no steps, if the other cannot change it."""
    b = FloatBuilder(rng, [1, 16])
    weights = weights_of(rng), (rng.normal(size=(6, 16)) / 2).astype(np.float32)
    first, second = (b.node("Gemm", "x", b.constant(array), name=name, transB=1)
                     for name, array in zip(("logits", "other"), weights, strict=True))
    y = b.node("Sigmoid", b.node("Add", first, second, name="sum"))
    x = drawn(rng)
    found = quantized(b.model(y), x, method="minmax")
    assert scale_of_logits(found) < 60 / 255
    wanted, made = outputs_of(found.reference, x), outputs_of(found.model, x)
    assert np.square(made - wanted).sum() < np.square(wanted).sum() / 10 ** 2.8


def test_a_constant_summand(rng: Rng) -> None:
    b = FloatBuilder(rng, [1, 6])
    y = b.node("Sigmoid", total := b.node("Add", "x", b.constant(np.float32([5, -1, 2, 0, 0, 1]))))
    assert saturation(b.model(y), {}) == {"x": (-13, 9), total: (-8, 8)}


def test_a_sum_is_not_much_smaller_than_its_summands(rng: Rng) -> None:
    """Two that nearly cancel each other: no multiplier would reach from their steps to those near zero."""
    b = FloatBuilder(rng, [1, 16])
    weights = rng.normal(size=(6, 16)).astype(np.float32) * LARGER
    first, second = (b.node("Gemm", "x", b.constant(array), name=name, transB=1)
                     for name, array in (("logits", weights), ("other", -weights)))
    x = rng.normal(size=(24, 16)).astype(np.float32)
    found = quantized(b.model(b.node("Sigmoid", b.node("Add", first, second, name="sum"))), x, method="minmax")
    constants = {tensor.name: tensor for tensor in found.model.graph.initializer}
    scales = {row.node: float(numpy_helper.to_array(constants[f"{row.output}_scale"])) for row in found.plan.layers}
    total = next(name for name in found.plan.tensors if found.plan.tensors[name] == "sum")
    assert numpy_helper.to_array(constants[f"{total}_scale"]) > scales["logits"] / 33
