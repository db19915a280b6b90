"""Operands with a number for each row, or each column: on the accelerator, as maps."""

from pathlib import Path

import numpy as np
import pytest

from gen.quantize.prepare import prepare
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import outputs_of
from tests.gen.test_never_refused import compiled, host

Rng = np.random.Generator


def _gated(rng: Rng, op: str, axes: list[list[int]], width: int = 12) -> FloatBuilder:
    """A layer's result and the means of another one's along axes, one after the other, and a layer."""
    b = FloatBuilder(rng, ["n", 3, 8, width])
    y, other = b.same_conv("x", 3, 4), b.same_conv("x", 3, 4)
    for number, axis in enumerate(axes):
        gate = b.node("Sigmoid", b.node("ReduceMean", other, axes=axis, keepdims=1))
        y = b.node(op, *((y, gate) if number or op != "Sub" else (gate, y)))
    b.same_conv(y, 4, 4, name="y")
    return b


@pytest.mark.parametrize(("op", "axes", "width"), [
    ("Mul", [[2], [3]], 12), ("Add", [[3]], 12), ("Sub", [[2]], 12), ("Mul", [[3]], 40)])
def test_rows_and_columns(op: str, axes: list[list[int]], width: int, rng: Rng, tmp_path: Path) -> None:
    """In two steps where a layer does not make as many columns of one."""
    model = _gated(rng, op, axes, width).model("y")
    made = prepare(model)
    assert sum(node.op_type == "Resize" for node in made.graph.node) == len(axes) + (width > 32)
    x = rng.normal(size=(2, 3, 8, width)).astype(np.float32)
    np.testing.assert_allclose(outputs_of(made, x), outputs_of(model, x), rtol=0, atol=1e-5)
    assert not host(compiled(model, tmp_path))


def test_what_the_machine_has_itself(rng: Rng) -> None:
    """A number for each channel, or for each pixel; nor is a prime number of columns made of one."""
    assert "Resize" not in {node.op_type for node in prepare(_gated(rng, "Mul", [[2, 3], [1]]).model("y")).graph.node}
    assert "Resize" not in {node.op_type for node in prepare(_gated(rng, "Mul", [[3]], 37).model("y")).graph.node}
