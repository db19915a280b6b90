"""Operations element by element, of any number of operands that are broadcast.

Those that follow each other are one loop: what is read by the next one alone is computed within it, and so is what is
dequantised. So a chain of them needs no memory between its ends.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence

import numpy as np

from gen.c.context import Context, Pending
from gen.c.helper import Helper, instance
from gen.c.text import c_type
from gen.c.value import Dim, Value, product, strides_of
from gen.c.walk import ROWS, broadcast, walk
from gen.onnx.model import NodeError

__all__ = ["broadcast_shape", "each"]

#: Different tensors that one loop reads, from which on no more operations are taken into it.
_MANY_OPERANDS = 6
_PLAIN = """
static void $name(size_t count, $pointers, $y *py$parameters)
{
    for (size_t i = 0u; i < count; ++i) {
$lines
        py[i] = $expression;
    }
}
"""
_ALONG = """
static void $name(const size_t *walk, $pointers, $y *py$parameters)
{
    const size_t rows = op_rows(walk), count = walk[walk[0]];
    for (size_t row = 0u; row < rows; ++row, py += count) {
$rows
        for (size_t i = 0u; i < count; ++i) {
$lines
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


class _Loop:
    """An operation, and those that are computed within its loop.

    ``operands``: tensors with their steps, each once. ``lines``: definitions of elements, "@n" being that of operand n.
    """

    def __init__(self, c: Context, last: Pending) -> None:
        self.operands: list[tuple[Value, list[Dim]]] = []
        self.lines: list[str] = []
        self.names: list[str] = []
        self.needs: list[Helper] = []
        self._c = c
        self.expression = self._add(last, "x")

    def _add(self, pending: Pending, prefix: str) -> str:
        """What an operation computes, its elements having names that begin so."""
        self.names.append(pending.name)
        self.needs.extend(pending.needs)
        for number, (value, steps) in enumerate(zip(pending.operands, pending.steps, strict=True)):
            word = f"{prefix}{number}"
            within = self._within(value, pending.shape, steps)
            text = f"@{self._operand(value, steps)}" if within is None else self._add(within, f"{word}_")
            self.lines.append(f"const {c_type(value.dtype).name} {word} = {text};")
        text = re.sub(r"\bx(\d)\b", rf"{prefix}\1", pending.expression)
        return text if pending.dtype.kind == "f" else f"({c_type(pending.dtype).name})({text})"

    def _operand(self, value: Value, steps: Sequence[Dim]) -> int:
        for number, (other, along) in enumerate(self.operands):
            if along == list(steps) and (other is value or value.storage is not None
                                         and other.storage is value.storage):
                return number
        self.operands.append((value, list(steps)))
        return len(self.operands) - 1

    def _within(self, value: Value, shape: Sequence[Dim], steps: Sequence[Dim]) -> Pending | None:
        """The operation that makes an operand, if it is to be computed here."""
        if value.storage is None or (found := self._c.pending.get(value.storage)) is None:
            return None
        light = found.name.startswith("dequantize") and not any(
            one.storage in self._c.pending for one in found.operands if one.storage is not None)
        alone = self._c.readers.get(value.storage, 1) == 1
        fits = (not found.parameters and found.shape == tuple(shape) and list(steps) == strides_of(shape)
                and len(self.operands) + len(found.operands) <= _MANY_OPERANDS)
        return found if fits and (light or alone) else None

    def helper(self, last: Pending, *, plain: bool) -> Helper:
        types = [c_type(value.dtype) for value, _ in self.operands]
        result = c_type(last.dtype)

        def spelled(line: str) -> str:
            return re.sub(r"@(\d+)", r"p\1[i]" if plain else r"r\1[i * s\1]", line)

        indent = " " * (8 if plain else 12)
        words = dict(
            y=result.name, expression=self.expression,
            pointers=", ".join(f"const {kind.name} *p{n}" for n, kind in enumerate(types)),
            lines="\n".join(f"{indent}{spelled(line)}" for line in self.lines),
            parameters="".join(f", {kind} {word}" for word, (kind, _) in last.parameters.items()))
        if not plain:
            words["rows"] = "\n".join(
                f"        const {kind.name} *const r{n} = p{n} + op_offset(walk, {n}u, row);\n"
                f"        const size_t s{n} = op_step(walk, {n}u);" for n, kind in enumerate(types))
        suffixes = [kind.suffix for kind in (*types, result)]
        name = "_".join([last.name, *(suffixes if len(set(suffixes)) > 1 else suffixes[:1])])
        text = _PLAIN if plain else _ALONG
        if len(self.names) > 1 or len(self.operands) < len(last.operands):
            digest = hashlib.blake2b(repr(sorted(words.items())).encode(), digest_size=4).hexdigest()
            name, text = f"chain_{digest}", f"/* {', '.join(self.names[::-1])} */{text}"
        needs = self.needs if plain else (*ROWS, *self.needs)
        return instance(name if plain else f"{name}_along", text, needs, **words)


def each(c: Context, name: str, expression: str, operands: Sequence[Value], dtype: np.dtype | type, *,
         shape: Sequence[Dim] | None = None, steps: Sequence[Sequence[Dim]] | None = None,
         parameters: Mapping[str, tuple[str, str]] | None = None, needs: Sequence[Helper] = ()) -> Value:
    """What ``expression``, in C, makes of elements ``x0``, ``x1`` and so on, and of ``parameters``: names -> type and
    argument. ``name`` says which expression it is, for operands of these types. Operands are broadcast, unless
    ``steps`` say where their elements are in a result of ``shape``.

    Raises NodeError for shapes that do not go together, KeyError for types that C has not.
    """
    for kind in (*(value.dtype for value in operands), np.dtype(dtype)):
        c_type(kind)
    to = broadcast_shape(operands) if shape is None else tuple(shape)
    along = [broadcast(value.shape, to) for value in operands] if steps is None else steps
    result = c.new(dtype, to)
    assert result.storage is not None
    pending = Pending(name, expression, operands, along, to, result.dtype, parameters or {}, needs,
                      lambda: _emit(c, pending, result))
    c.pending[result.storage] = pending
    return result


def _emit(c: Context, pending: Pending, result: Value) -> None:
    loop = _Loop(c, pending)
    operands, steps = [value for value, _ in loop.operands], [own for _, own in loop.operands]
    plain = all(own == strides_of(pending.shape) for own in steps)
    where = product(pending.shape) if plain else walk(pending.shape, *steps)
    _may_be_over(result, operands, steps)
    c.call(loop.helper(pending, plain=plain), where, *operands, result,
           *(argument for _, argument in pending.parameters.values()))


def _may_be_over(result: Value, operands: Sequence[Value], steps: Sequence[Sequence[Dim]]) -> None:
    """An operand of the same type may give way to the result where it is as large, and so has its elements in order."""
    assert result.storage is not None
    result.storage.over = tuple(
        value.storage for value, own in zip(operands, steps, strict=True)
        if value.storage is not None and value.dtype == result.dtype and list(own) == strides_of(result.shape))
