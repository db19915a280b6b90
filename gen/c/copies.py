"""Copies along walks, which everything that only moves elements is made of."""

from collections.abc import Sequence

import numpy as np

from gen.c.context import Context
from gen.c.helper import Helper, instance
from gen.c.text import c_type, literal
from gen.c.value import Dim, Value, product, strides_of
from gen.c.walk import ROWS, contiguous, walk

__all__ = ["copy", "fill", "moved", "pick", "place_helper"]

_COPY = """
static void $name(const size_t *walk, const $T *x, size_t from, $T *y, size_t to)
{
    const size_t rows = op_rows(walk), count = walk[walk[0]], sx = op_step(walk, 0u), sy = op_step(walk, 1u);
    for (size_t row = 0u; row < rows; ++row) {
        const $T *const source = x + (from + op_offset(walk, 0u, row));
        $T *const target = y + (to + op_offset(walk, 1u, row));
        if (sx == 1u && sy == 1u)
            memcpy(target, source, count * sizeof *y);
        else
            for (size_t i = 0u; i < count; ++i)
                target[i * sy] = source[i * sx];
    }
}
"""
_FILL = """
static void $name(size_t count, $T value, $T *y)
{
    for (size_t i = 0u; i < count; ++i)
        y[i] = value;
}
"""
_PICK = """
/* Along one axis the elements that `index` names: `count` of `size`, of which a negative one counts from the end. */
static void $name(size_t outer, size_t size, size_t count, size_t inner, const $I *index, const $T *x, $T *y)
{
    for (size_t o = 0u; o < outer; ++o, x += size * inner)
        for (size_t i = 0u; i < count; ++i, y += inner)
            memcpy(y, x + op_place_$i(index[i], size) * inner, inner * sizeof *y);
}
"""
_PLACE = """
/* An index within `size`; one beyond it, which no valid model has, is moved to the nearest. */
static size_t $name($I index, size_t size)
{
    const int64_t place = (int64_t)index < 0 ? (int64_t)index + (int64_t)size : (int64_t)index;
    return place < 0 ? 0u : (uint64_t)place < size ? (size_t)place : size - 1u;
}
"""


def place_helper(dtype: np.dtype) -> Helper:
    kind = c_type(dtype)
    return instance(f"place_{kind.suffix}", _PLACE, I=kind.name)


def copy(c: Context, source: Value, target: Value, shape: Sequence[Dim], source_steps: Sequence[Dim],
         target_steps: Sequence[Dim], *, start: Dim = 0, to: Dim = 0) -> None:
    """Elements of ``shape``, which are that far from each other in the source, from ``start`` on, and in the target."""
    kind = c_type(source.dtype)
    helper = instance(f"copy_{kind.suffix}", _COPY, ROWS, T=kind.name)
    c.call(helper, walk(shape, source_steps, target_steps), source, start, target, to)


def moved(c: Context, source: Value, shape: Sequence[Dim], steps: Sequence[Dim], *, start: Dim = 0) -> Value:
    """A tensor of ``shape`` of elements that are so many ``steps`` from each other in the source."""
    if start == 0 and source.array is None and contiguous(shape, steps) and product(shape) == product(source.shape):
        return c.alias(source, shape)
    result = c.new(source.dtype, shape)
    copy(c, source, result, shape, steps, strides_of(shape), start=start)
    return result


def fill(c: Context, value: Value, number: object) -> None:
    kind = c_type(value.dtype)
    c.call(instance(f"fill_{kind.suffix}", _FILL, T=kind.name), product(value.shape),
           literal(number, value.dtype), value)


def pick(c: Context, source: Value, axis: int, index: Value, *, shape: Sequence[Dim] | None = None) -> Value:
    """Along an axis, the elements that ``index``, of int32 or int64, names; they have its ``shape`` in place of it."""
    kind, indices = c_type(source.dtype), c_type(index.dtype)
    helper = instance(f"pick_{kind.suffix}_{indices.suffix}", _PICK, (place_helper(index.dtype),), T=kind.name,
                      I=indices.name, i=indices.suffix)
    own = index.shape if shape is None else shape
    result = c.new(source.dtype, (*source.shape[:axis], *own, *source.shape[axis + 1:]))
    c.call(helper, product(source.shape[:axis]), source.shape[axis], product(own), product(source.shape[axis + 1:]),
           index, source, result)
    return result
