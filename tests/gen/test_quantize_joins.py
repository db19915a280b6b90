"""Concats of tensors of other sizes in front of layers."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from gen.check.compare import compare
from gen.onnx.importer import load_model
from gen.onnx.machine import Machine
from gen.quantize.joins import balance_joins
from gen.quantize.options import QuantizeOptions
from gen.quantize.prepare import prepare
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import outputs_of, quantized


def network(rng: np.random.Generator, size: float, weight: float, *, pooled: bool = False) -> onnx.ModelProto:
    """Two tensors of 4 channels, of which the second is ``size`` times as large, and read by weights ``weight`` times
    as large; another layer reads it, too.
    """
    b = FloatBuilder(rng, [1, 3, 8, 8])
    one, small = (b.node("Relu", b.same_conv("x", 3, 4), name=name) for name in ("one", "small"))
    for constant in b.constants[-2:]:
        array = onnx.numpy_helper.to_array(constant) * np.float32(size)
        constant.CopyFrom(onnx.numpy_helper.from_array(array, constant.name))
    both = b.node("Concat", one, small, name="both", axis=1)
    both = b.node("MaxPool", both, kernel_shape=[2, 2]) if pooled else both
    weights = rng.normal(0, 0.2, (4, 8, 1, 1)) * np.repeat([1, weight], 4).reshape(1, 8, 1, 1)
    y = b.node("Conv", both, b.constant(weights), name="reader")
    z = b.same_conv(small, 4, 4, name="other")
    z = b.node("MaxPool", z, kernel_shape=[2, 2]) if pooled else z
    return b.model(b.node("Add", y, b.node("Mul", z, b.constant(np.float32(1 / size)), name="up"), name="y"))


@pytest.mark.parametrize("pooled", [False, True])
def test_a_small_part_that_matters(pooled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps its steps, at no further layer. Of one network: what that gains, and whether a scale takes a layer of
    its own, is chance of the weights.
    """
    rng = np.random.default_rng(0)
    model, x = network(rng, 0.01, 100, pooled=pooled), rng.normal(size=(20, 3, 8, 8)).astype(np.float32)
    exact = outputs_of(model, x)

    def quality() -> tuple[float, int]:
        found = quantized(model, x)
        onnx.save(found.model, tmp_path / "q.onnx")
        assert compare(tmp_path / "q.onnx", {"x": x[:2]}).largest <= 1
        layers = load_model(tmp_path / "q.onnx", machine=Machine.complete()).graph.layers
        return float(10 * np.log10((exact ** 2).sum() / ((exact - outputs_of(found.model, x)) ** 2).sum())), len(layers)

    after = quality()
    monkeypatch.setattr("gen.quantize.draft.balance_joins", lambda model, samples, options: (model, {}))
    before = quality()
    assert after[0] > before[0] + 3 and after[1] <= before[1]


def test_the_function_is_the_same(rng: np.random.Generator) -> None:
    """To the bit; and of a model without such a Concat nothing is copied."""
    x = rng.normal(size=(20, 3, 8, 8)).astype(np.float32)
    model = prepare(network(rng, 0.01, 100))
    changed, products = balance_joins(model, {"x": x}, QuantizeOptions())
    np.testing.assert_array_equal(outputs_of(changed, x), outputs_of(model, x))
    assert products == {"both/scaled/1": "both"}
    alike = prepare(network(rng, 0.5, 1))
    assert balance_joins(alike, {"x": x}, QuantizeOptions()) == (alike, {})


def test_what_is_left_is_said(rng: np.random.Generator) -> None:
    """Also of a part that weights do not make up for, which gains little."""
    x = rng.normal(size=(20, 3, 8, 8)).astype(np.float32)
    (remark,) = quantized(network(rng, 0.001, 1), x).remarks
    assert remark.startswith("node both (Concat): joins values up to ") and "of 255 steps the small ones " in remark
    assert quantized(network(rng, 0.5, 1), x).remarks == ()
