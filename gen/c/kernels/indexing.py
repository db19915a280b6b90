"""Elements that are chosen, or set, by indices: Gather and Scatter in their forms."""


import numpy as np

from gen.c.context import Context
from gen.c.copies import copy, moved, pick, place_helper
from gen.c.helper import instance
from gen.c.kernels.movement import axis_of
from gen.c.registry import operator
from gen.c.text import c_type
from gen.c.value import Dim, Value, most, product, strides_of
from gen.c.walk import ROWS, walk
from gen.onnx.model import Node

__all__: list[str] = []


@operator("Gather")
def gather(node: Node, c: Context) -> None:
    value, index = c.input(0), c.input(1)
    axis = axis_of(node, value.rank)
    if index.array is not None and index.array.size == 1 and value.array is None:
        size, steps = value.shape[axis], strides_of(value.shape)
        step = steps[axis]
        at = int(index.array.item())
        if isinstance(size, int) and isinstance(step, int):
            shape = (*value.shape[:axis], *index.shape, *value.shape[axis + 1:])
            plain = (*value.shape[:axis], 1, *value.shape[axis + 1:])
            c.result(c.alias(moved(c, value, plain, steps, start=(at % size) * step), shape))
            return
    if index.array is not None and index.dtype == np.int64:
        index = Value(np.dtype(np.int32), index.shape, array=index.array.astype(np.int32))
    c.result(pick(c, value, axis, index))


_ELEMENTS = """
/* y has the index's shape; of each element all coordinates are its own but for that along the axis. */
static void $name(const size_t *walk, size_t size, size_t step, const $I *index, const $T *x, $T *y)
{
    const size_t rows = op_rows(walk), count = walk[walk[0]], sx = op_step(walk, 0u);
    for (size_t row = 0u; row < rows; ++row) {
        const $T *const source = x + op_offset(walk, 0u, row);
        for (size_t i = 0u; i < count; ++i)
            *y++ = source[i * sx + op_place_$i(*index++, size) * step];
    }
}
"""
_SCATTER = """
static void $name(const size_t *walk, size_t size, size_t step, const $I *index, const $T *updates, $T *y)
{
    const size_t rows = op_rows(walk), count = walk[walk[0]], sy = op_step(walk, 0u);
    for (size_t row = 0u; row < rows; ++row) {
        $T *const target = y + op_offset(walk, 0u, row);
        for (size_t i = 0u; i < count; ++i) {
            $T *const one = target + (i * sy + op_place_$i(*index++, size) * step);
            const $T x0 = *one, x1 = *updates++;
            (void)x0;
            *one = $expression;
        }
    }
}
"""
_REDUCTIONS = {"none": "x1", "add": "($T)(x0 + x1)", "mul": "($T)(x0 * x1)", "max": "x0 > x1 ? x0 : x1",
               "min": "x0 < x1 ? x0 : x1"}


def _along(value: Value, index: Value, axis: int) -> tuple[list[Dim], Dim]:
    steps = strides_of(value.shape)
    return [0 if at == axis else step for at, step in enumerate(steps)], steps[axis]


@operator("GatherElements")
def gather_elements(node: Node, c: Context) -> None:
    value, index = c.input(0), c.input(1)
    axis = axis_of(node, value.rank)
    kind, indices = c_type(value.dtype), c_type(index.dtype)
    along, step = _along(value, index, axis)
    result = c.new(value.dtype, index.shape)
    helper = instance(f"elements_{kind.suffix}_{indices.suffix}", _ELEMENTS, (*ROWS, place_helper(index.dtype)),
                      T=kind.name, I=indices.name, i=indices.suffix)
    c.call(helper, walk(index.shape, along), value.shape[axis], step, index, value, result)
    c.result(result)


def _reduction(node: Node, c: Context, kind: str) -> tuple[str, str]:
    word = node.attributes.get("reduction", "none")
    word = word.decode() if isinstance(word, bytes) else word
    return word, _REDUCTIONS[word].replace("$T", kind)


@operator("ScatterElements", "Scatter")
def scatter_elements(node: Node, c: Context) -> None:
    value, index, updates = c.input(0), c.input(1), c.input(2)
    axis = axis_of(node, value.rank)
    kind, indices = c_type(value.dtype), c_type(index.dtype)
    word, text = _reduction(node, c, kind.name)
    result = c.new(value.dtype, value.shape)
    copy(c, value, result, value.shape, strides_of(value.shape), strides_of(value.shape))
    along, step = _along(value, index, axis)
    helper = instance(f"scatter_{word}_{kind.suffix}_{indices.suffix}", _SCATTER,
                      (*ROWS, place_helper(index.dtype)), T=kind.name, I=indices.name, i=indices.suffix,
                      expression=text)
    c.call(helper, walk(index.shape, along), value.shape[axis], step, index, updates, result)
    c.result(result)


_ND = """
/* Slices of `inner` elements; each index has `depth` coordinates in axes of these sizes. */
static void $name(size_t batches, size_t stride, size_t count, size_t depth, const size_t *sizes, size_t inner,
                  const $I *index, $parameters)
{
    for (size_t b = 0u; b < batches; ++b, $each += stride)
        for (size_t i = 0u; i < count; ++i, $other += inner) {
            size_t at = 0u;
            for (size_t d = 0u; d < depth; ++d)
                at = at * sizes[d] + op_place_$i(*index++, sizes[d]);
            $body
        }
}
"""


@operator("GatherND")
def gather_nd(node: Node, c: Context) -> None:
    value, index = c.input(0), c.input(1)
    batch = int(node.attributes.get("batch_dims", 0))
    depth = most(index.shape[-1])
    kind, indices = c_type(value.dtype), c_type(index.dtype)
    helper = instance(f"gather_nd_{kind.suffix}_{indices.suffix}", _ND, (place_helper(index.dtype),), I=indices.name,
                      i=indices.suffix, parameters=f"const {kind.name} *x, {kind.name} *y", each="x", other="y",
                      body="memcpy(y, x + at * inner, inner * sizeof *y);")
    result = c.new(value.dtype, (*index.shape[:-1], *value.shape[batch + depth:]))
    c.call(helper, product(value.shape[:batch]), product(value.shape[batch:]), product(index.shape[batch:-1]), depth,
           list(value.shape[batch:batch + depth]), product(value.shape[batch + depth:]), index, value, result)
    c.result(result)


@operator("ScatterND")
def scatter_nd(node: Node, c: Context) -> None:
    value, index, updates = c.input(0), c.input(1), c.input(2)
    depth = most(index.shape[-1])
    kind, indices = c_type(value.dtype), c_type(index.dtype)
    word, text = _reduction(node, c, kind.name)
    body = "memcpy(y + at * inner, updates, inner * sizeof *y);" if word == "none" else (
        "for (size_t k = 0u; k < inner; ++k) {\n"
        f"                const {kind.name} x0 = y[at * inner + k], x1 = updates[k];\n"
        f"                y[at * inner + k] = {text};\n            }}")
    helper = instance(f"scatter_nd_{word}_{kind.suffix}_{indices.suffix}", _ND, (place_helper(index.dtype),),
                      I=indices.name, i=indices.suffix, parameters=f"const {kind.name} *updates, {kind.name} *y",
                      each="y", other="updates", body=body)
    result = c.new(value.dtype, value.shape)
    copy(c, value, result, value.shape, strides_of(value.shape), strides_of(value.shape))
    c.call(helper, 1, 0, product(index.shape[:-1]), depth, list(value.shape[:depth]), product(value.shape[depth:]),
           index, updates, result)
    c.result(result)
