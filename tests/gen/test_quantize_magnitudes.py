"""Spectra: the squares of which a root or a logarithm is taken have more digits than eight bits."""

import numpy as np
import onnx
import pytest

from gen.quantize.magnitudes import magnitudes
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import outputs_of, quantized

Rng = np.random.Generator


def spectrum(rng: Rng, form: str, end: str) -> onnx.ModelProto:
    """Real and imaginary parts of 8 bins, of which some are much larger, their magnitudes, and a layer of these."""
    b = FloatBuilder(rng, [1, 4, 6, 6])
    sizes = np.float32([1, 1, 0.3, 0.1, 0.1, 0.03, 0.03, 0.03]).reshape(1, 8, 1, 1)
    parts = [b.node("Mul", b.conv("x", 4, 8, kernel=1), b.constant(sizes)) for _ in range(2)]
    two = b.constant(np.float32(2))
    squares = [b.node("Pow", part, two) if form == "Pow" else b.node("Mul", part, part) for part in parts]
    power = b.node("Add", b.node("Add", *squares, name="power"), b.constant(np.float32(1e-5)))
    root = b.node(end, power, name="end") if end != "Pow" else b.node(
        "Pow", power, b.constant(np.float32(0.5)), name="end")
    return b.model(b.conv(root, 8, 4, kernel=1))


@pytest.mark.parametrize("form, end, decibels", [
    ("Pow", "Sqrt", 25), ("Mul", "Sqrt", 25), ("Mul", "Pow", 25), ("Mul", "Log", 12)])
def test_they_stay_float(form: str, end: str, decibels: float, rng: Rng) -> None:
    x = rng.normal(size=(24, 4, 6, 6)).astype(np.float32)
    model = spectrum(rng, form, end)
    (nodes,) = magnitudes(model).values()
    assert {"power", "end"} < nodes and len(nodes) == 5
    found = quantized(model, x)
    wanted, made = outputs_of(found.reference, x), outputs_of(found.model, x)
    assert np.square(made - wanted).sum() < np.square(wanted).sum() / 10 ** (decibels / 10)
    assert any(line.startswith("the squares that end reads stay float") for line in found.remarks)


def test_norms_are_none(rng: Rng) -> None:
    """What divides needs no digits that eight bits do not have."""
    b = FloatBuilder(rng, [1, 4, 6, 6])
    y = b.same_conv("x", 4, 8)
    length = b.node("Sqrt", b.node("ReduceSum", b.node("Mul", y, y), b.constant(np.int64([1])), keepdims=1))
    assert not magnitudes(b.model(b.same_conv(b.node("Div", y, length), 8, 4)))


@pytest.mark.parametrize("other", ["x", "sum"])
def test_roots_of_other_things_are_none(other: str, rng: Rng) -> None:
    b = FloatBuilder(rng, [1, 4, 6, 6])
    y = b.node("Sigmoid", b.same_conv("x", 4, 4))
    if other == "sum":
        y = b.node("Add", y, b.node("Mul", y, y))
    assert not magnitudes(b.model(b.same_conv(b.node("Sqrt", y), 4, 4)))
