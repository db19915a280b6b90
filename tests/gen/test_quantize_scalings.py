"""What normalises inputs of very different scales stays float."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from gen.quantize.report import measure
from gen.quantize.scalings import normalisers
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import quantized
from tests.gen.test_never_refused import compiled, host

Rng = np.random.Generator
_WIDTH = 16


def _policy(rng: Rng, form: str, apart: float) -> tuple[onnx.ModelProto, np.ndarray]:
    """Quantities whose deviations are up to ``apart`` times each other's, normalised, two layers; and samples."""
    mean, deviation = rng.normal(size=_WIDTH), np.geomspace(1, apart, _WIDTH) / 4
    b = FloatBuilder(rng, ["n", _WIDTH])
    if form == "norm":
        numbers = np.ones(_WIDTH), np.zeros(_WIDTH), mean, deviation ** 2
        y = b.node("BatchNormalization", "x", *map(b.constant, numbers), name="norm")
    else:
        y = b.node("Sub", "x", b.constant(mean), name="less")
        factor = deviation if form == "Div" else 1 / deviation
        y = b.node(form, y, b.constant(factor), name="scaled")
    y = b.node("Relu", b.node("MatMul", y, b.weights(_WIDTH, 32)))
    x = (mean + deviation * rng.normal(size=(64, _WIDTH))).astype(np.float32)
    return b.model(b.node("MatMul", y, b.weights(32, 4))), x


@pytest.mark.parametrize("form", ["Mul", "Div", "norm"])
def test_scales_far_apart(form: str, rng: Rng, tmp_path: Path) -> None:
    model, x = _policy(rng, form, 400)
    names = ["norm"] if form == "norm" else ["less", "scaled"]
    assert normalisers(model) == names
    found = quantized(model, x)
    (line,) = found.remarks
    assert line.startswith(f"node {', '.join(names)}: scales numbers of an input")
    assert min(sqnr for sqnr in measure(found, {"x": x}).outputs.values() if sqnr is not None) > 28
    assert set(names) <= host(compiled(model, tmp_path)).keys()


@pytest.mark.parametrize("form", ["Mul", "Div", "norm"])
def test_scales_that_are_alike(form: str, rng: Rng, tmp_path: Path) -> None:
    """Those of an image's colours go into the layer after them, as ever."""
    model, x = _policy(rng, form, 4)
    assert not normalisers(model) and not quantized(model, x).remarks
    assert not host(compiled(model, tmp_path))
