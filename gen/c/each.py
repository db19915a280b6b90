"""Operations element by element, of any number of operands that are broadcast."""

from collections.abc import Mapping, Sequence

import numpy as np

from gen.c.context import Context
from gen.c.helper import Helper, instance
from gen.c.text import c_type
from gen.c.value import Dim, Value, product, strides_of
from gen.c.walk import ROWS, broadcast, walk
from gen.onnx.model import NodeError

__all__ = ["broadcast_shape", "each"]

_ONE = """
static void $name(size_t count, const $x *px, $y *py$parameters)
{
    for (size_t i = 0u; i < count; ++i) {
        const $x x0 = px[i];
        py[i] = $expression;
    }
}
"""
_MANY = """
static void $name(const size_t *walk, $pointers, $y *py$parameters)
{
    const size_t rows = op_rows(walk), count = walk[walk[0]];
    for (size_t row = 0u; row < rows; ++row, py += count) {
$rows
        for (size_t i = 0u; i < count; ++i) {
$elements
            py[i] = $expression;
        }
    }
}
"""


def broadcast_shape(values: Sequence[Value]) -> tuple[Dim, ...]:
    """Raises NodeError for shapes that do not go together, or of which that is not known."""
    rank = max(value.rank for value in values)
    found: list[Dim] = [1] * rank
    for value in values:
        for axis, dim in enumerate(value.shape, rank - value.rank):
            if dim != 1:
                if found[axis] not in (1, dim):
                    raise NodeError(f"its inputs of shapes {[one.shape for one in values]} cannot be broadcast",
                                    code="operand-shapes")
                found[axis] = dim
    return tuple(found)


def _helper(name: str, expression: str, operands: Sequence[Value], dtype: np.dtype,
            parameters: Mapping[str, str], needs: Sequence[Helper], *, broadcasts: bool) -> Helper:
    types = [c_type(value.dtype) for value in operands]
    result = c_type(dtype)
    suffix = "_".join(dict.fromkeys([*(one.suffix for one in types), result.suffix]))
    if len(dict.fromkeys(one.suffix for one in types)) > 1:
        suffix = "_".join([*(one.suffix for one in types), result.suffix])
    plain = expression if dtype.kind == "f" else f"({result.name})({expression})"
    words = dict(y=result.name, expression=plain,
                 parameters="".join(f", {kind} {word}" for word, kind in parameters.items()))
    if not broadcasts:
        return instance(f"{name}_{suffix}", _ONE, needs, x=types[0].name, **words)
    return instance(
        f"{name}_{suffix}_along", _MANY, (*ROWS, *needs),
        pointers=", ".join(f"const {kind.name} *p{n}" for n, kind in enumerate(types)),
        rows="\n".join(f"        const {kind.name} *const r{n} = p{n} + op_offset(walk, {n}u, row);\n"
                       f"        const size_t s{n} = op_step(walk, {n}u);" for n, kind in enumerate(types)),
        elements="\n".join(f"            const {kind.name} x{n} = r{n}[i * s{n}];" for n, kind in enumerate(types)),
        **words)


def each(c: Context, name: str, expression: str, operands: Sequence[Value], dtype: np.dtype | type, *,
         shape: Sequence[Dim] | None = None, steps: Sequence[Sequence[Dim]] | None = None,
         parameters: Mapping[str, tuple[str, str]] | None = None, needs: Sequence[Helper] = ()) -> Value:
    """What ``expression``, in C, makes of elements ``x0``, ``x1`` and so on, and of ``parameters``: names -> type and
    argument. Operands are broadcast, unless ``steps`` say where their elements are in a result of ``shape``.

    Raises NodeError for shapes that do not go together.
    """
    found = np.dtype(dtype)
    to = broadcast_shape(operands) if shape is None else tuple(shape)
    along = [broadcast(value.shape, to) for value in operands] if steps is None else steps
    extra = parameters or {}
    plain = len(operands) == 1 and list(along[0]) == strides_of(to)
    helper = _helper(name, expression, operands, found, {word: kind for word, (kind, _) in extra.items()}, needs,
                     broadcasts=not plain)
    result = c.new(found, to)
    _may_be_over(result, operands, along)
    where = product(to) if plain else walk(to, *along)
    c.call(helper, where, *operands, result, *(argument for _, argument in extra.values()))
    return result


def _may_be_over(result: Value, operands: Sequence[Value], steps: Sequence[Sequence[Dim]]) -> None:
    """An operand of the same type may give way to the result where each element is read before it is written."""
    assert result.storage is not None
    order = strides_of(result.shape)
    moved = {id(value.storage) for value, own in zip(operands, steps, strict=True)
             if any(size != 1 and one != other for size, one, other in zip(result.shape, own, order, strict=True))}
    result.storage.over = tuple(
        value.storage for value in operands
        if value.storage is not None and value.dtype == result.dtype and id(value.storage) not in moved)
