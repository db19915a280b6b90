"""The larger and the smaller of two tensors: layers of a float model."""

from pathlib import Path

import numpy as np
import pytest

from gen.quantize.prepare import prepare
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import outputs_of
from tests.gen.test_never_refused import compiled, host

Rng = np.random.Generator


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_halves_of_channels(op: str, rng: Rng, tmp_path: Path) -> None:
    """As a network has them that has no other activation."""
    b = FloatBuilder(rng, ["n", 3, 8, 8])
    y = "x"
    for number, channels in enumerate((3, 4)):
        whole = b.same_conv(y, channels, 8)
        halves = [b.node("Slice", whole, *(b.constant(np.array([n])) for n in (start, start + 4, 1)))
                  for start in (0, 4)]
        y = b.node(op, *halves, name=f"choice{number}")
    model = b.model(b.same_conv(y, 4, 4), rank=4)
    made = prepare(model)
    assert op not in {node.op_type for node in made.graph.node}
    x = rng.normal(size=(2, 3, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(outputs_of(made, x), outputs_of(model, x), rtol=0, atol=1e-5)
    assert not host(compiled(model, tmp_path))


def test_what_a_table_is(rng: Rng, tmp_path: Path) -> None:
    """Of functions of one tensor; what nothing is multiplied with after it, and with a constant, it stays as well."""
    b = FloatBuilder(rng, ["n", 3, 8, 8])
    y = b.same_conv("x", 3, 4)
    y = b.node("Max", y, b.node("Mul", y, b.constant(np.float32(-0.5))))
    y = b.node("Min", b.same_conv(y, 4, 4), b.constant(np.float32(1)))
    model = b.model(b.node("Max", b.same_conv(y, 4, 4), y, name="last"), rank=4)
    assert [node.op_type for node in prepare(model).graph.node if node.op_type in ("Max", "Min", "Clip")] in (
        ["Max", "Min", "Max"], ["Max", "Clip", "Max"])
    assert host(compiled(model, tmp_path)).keys() == {"last"}
