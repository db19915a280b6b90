"""Sums of products: matrix products and what Einsum spells, of floats and of quantised integers."""

from collections.abc import Sequence

import numpy as np

from gen.c.context import Context
from gen.c.copies import moved
from gen.c.each import broadcast_shape, each
from gen.c.helper import instance
from gen.c.kernels.arithmetic import arithmetic, cast, sum_of
from gen.c.kernels.quantisation import round_helper
from gen.c.registry import operator
from gen.c.text import c_type, literal
from gen.c.value import Dim, Value, product, strides_of
from gen.c.walk import ROWS, broadcast, walk
from gen.onnx.model import MICROSOFT, Node, NodeError

__all__ = ["accumulator", "contracted", "requantised", "without_zero"]

_CONTRACT = """
/* `kept`: the results, and where in a and b their products begin; `along`: over what is summed. */
static void $name(const size_t *kept, const size_t *along, const $A *a, const $B *b, $C *y)
{
    const size_t rows = op_rows(kept), count = kept[kept[0]], ka = op_step(kept, 0u), kb = op_step(kept, 1u);
    const size_t inner = op_rows(along), length = along[along[0]], sa = op_step(along, 0u), sb = op_step(along, 1u);
    for (size_t row = 0u; row < rows; ++row) {
        const $A *const first = a + op_offset(kept, 0u, row);
        const $B *const second = b + op_offset(kept, 1u, row);
        for (size_t i = 0u; i < count; ++i) {
            $C total = 0;
            for (size_t r = 0u; r < inner; ++r) {
                const $A *const p = first + (i * ka + op_offset(along, 0u, r));
                const $B *const q = second + (i * kb + op_offset(along, 1u, r));
                for (size_t k = 0u; k < length; ++k)
                    total += $product;
            }
            *y++ = total;
        }
    }
}
"""


def accumulator(dtype: np.dtype) -> np.dtype:
    """The type of sums of products."""
    return dtype if dtype.kind == "f" or dtype.itemsize >= 4 else np.dtype(np.int32)


def contracted(c: Context, first: Value, second: Value, kept: Sequence[tuple[Dim, Dim, Dim]],
               along: Sequence[tuple[Dim, Dim, Dim]]) -> Value:
    """Sums over the axes ``along``, for each element of the axes ``kept``, which the result has: each a size and the
    steps of both operands.
    """
    a, b = c_type(first.dtype), c_type(second.dtype)
    dtype = accumulator(first.dtype)
    kind = c_type(dtype).name
    cast_to = "" if dtype == first.dtype == second.dtype else f"({kind})"
    text = f"{cast_to}p[k * sa] * {cast_to}q[k * sb]"
    helper = instance(f"contract_{a.suffix}_{b.suffix}", _CONTRACT, ROWS, A=a.name, B=b.name, C=kind, product=text)
    result = c.new(dtype, [size for size, *_ in kept])
    c.call(helper, *(walk(*zip(*axes, strict=True)) if axes else walk((), (), ()) for axes in (kept, along)),
           first, second, result)
    return result


def matrix_product(c: Context, first: Value, second: Value) -> Value:
    """As NumPy's matmul."""
    a = first if first.rank > 1 else c.alias(first, (1, *first.shape))
    b = second if second.rank > 1 else c.alias(second, (*second.shape, 1))
    if a.shape[-1] != b.shape[-2]:
        raise NodeError(f"its inputs of shapes {first.shape} and {second.shape} cannot be multiplied",
                        code="operand-shapes")
    batch = broadcast_shape([Value(one.dtype, one.shape[:-2]) for one in (a, b)])
    steps = [strides_of(one.shape) for one in (a, b)]
    # Of a tensor's own axes, of which those of its matrices come last.
    along = [[_scaled(step, one.shape[-2:]) for step in broadcast(one.shape[:-2], batch)] for one in (a, b)]
    kept = [*zip(batch, *along, strict=True), (a.shape[-2], steps[0][-2], 0), (b.shape[-1], 0, 1)]
    result = contracted(c, a, b, kept, [(a.shape[-1], 1, steps[1][-2])])
    shape = list(result.shape)
    if second.rank == 1:
        del shape[-1]
    if first.rank == 1:
        del shape[len(batch)]
    return c.alias(result, shape)


def _scaled(step: Dim, matrix: Sequence[Dim]) -> Dim:
    return product([step, *matrix])


@operator("MatMul")
def matmul(node: Node, c: Context) -> None:
    c.result(matrix_product(c, c.input(0), c.input(1)))


@operator("Gemm")
def gemm(node: Node, c: Context) -> None:
    c.result(_gemm(c, node, c.input(0), c.input(1), c.optional(2)))


def _gemm(c: Context, node: Node, first: Value, second: Value, bias: Value | None) -> Value:
    (m, k), (two, n) = first.shape, second.shape
    a, b = list(strides_of(first.shape)), list(strides_of(second.shape))
    if node.attributes.get("transA", 0):
        m, k, a = k, m, a[::-1]
    if node.attributes.get("transB", 0):
        n, b = two, b[::-1]
    result = contracted(c, first, second, [(m, a[0], 0), (n, 0, b[1])], [(k, a[1], b[0])])
    result = _times(c, result, node.attributes.get("alpha", 1.0))
    if bias is None:
        return result
    return sum_of(c, result, _times(c, bias, node.attributes.get("beta", 1.0)))


def _times(c: Context, value: Value, factor: float) -> Value:
    if factor == 1.0 or value.dtype.kind != "f":
        return value
    return each(c, "scale", "x0 * factor", [value], value.dtype, parameters={
        "factor": (c_type(value.dtype).name, literal(np.float32(factor), np.dtype(np.float32)))})


@operator("Einsum")
def einsum(node: Node, c: Context) -> None:
    values = [c.input(index) for index in range(len(node.inputs))]
    equation = node.attributes["equation"].replace(" ", "")
    if "." in equation or len(values) > 2:
        raise c.refusal(f"of {equation}")
    left, _, right = equation.partition("->")
    terms = left.split(",")
    if "->" not in equation:
        right = "".join(sorted(label for label in set(left) - {","} if left.count(label) == 1))
    sizes: dict[str, Dim] = {}
    steps: list[dict[str, Dim]] = []
    for term, value in zip(terms, values, strict=True):
        own: dict[str, Dim] = {}
        for label, size, step in zip(term, value.shape, strides_of(value.shape), strict=True):
            sizes[label] = size if sizes.get(label, 1) == 1 else sizes[label]
            if size != 1:
                before = own.get(label, 0)
                assert isinstance(before, int) and isinstance(step, int)
                own[label] = before + step
        steps.append(own)
    if len(values) == 1:    # times a one
        values.append(Value(values[0].dtype, (), array=np.ones((), values[0].dtype)))
        steps.append({})

    def axes(labels: Sequence[str]) -> list[tuple[Dim, Dim, Dim]]:
        return [(sizes[label], steps[0].get(label, 0), steps[1].get(label, 0)) for label in labels]

    c.result(contracted(c, values[0], values[1], axes(right), axes([one for one in sizes if one not in right])))


def without_zero(c: Context, value: Value, zero: Value | None, *, axis: int | None = None) -> Value:
    """Integers less their zero point, which is one, or one for each place along an axis."""
    if zero is None or zero.array is not None and not zero.array.any():
        return value
    if zero.rank == 1 and axis is not None:
        zero = c.alias(zero, (*zero.shape, *[1] * (value.rank - 1 - axis)))
    if value.array is not None and zero.array is not None:
        array = value.array.astype(np.int16) - zero.array.astype(np.int16)
        return Value(array.dtype, array.shape, array=array)
    return each(c, "less", "x0 - x1", [value, zero], np.int16)


def requantised(c: Context, sums: Value, scales: Sequence[Value], zero: Value | None, dtype: np.dtype, *,
                axes: int = 0) -> Value:
    """Sums of products as integers: ``scales`` of both operands, one or one for each channel of the second, which
    ``axes`` others follow, and of the result.
    """
    first, second, third = scales
    shaped = [c.alias(one, (*one.shape, *[1] * axes)) if one.rank == 1 and one.shape != (1,) else c.alias(one, ())
              for one in (first, second, third)]
    for one in shaped:
        c_type(one.dtype)
    if all(one.array is not None for one in shaped):
        a, b, d = (one.array for one in shaped)
        assert a is not None and b is not None and d is not None
        factor_array = np.asarray(a * b / d)
        factor = Value(np.dtype(np.float32), factor_array.shape, array=factor_array)
    else:
        factor = each(c, "factor", "x0 * x1 / x2", shaped, np.float32)
    rounded = round_helper(dtype)
    operands = [sums, factor] + ([] if zero is None else [c.alias(zero, ())])
    text = f"{rounded.name}((float)x0 * x1, {'0' if zero is None else 'x2'})"
    return each(c, "requantize0" if zero is None else "requantize", text, operands, dtype, needs=[rounded])


@operator("MatMulInteger")
def matmul_integer(node: Node, c: Context) -> None:
    first, second = c.input(0), c.input(1)
    first_zero = c.optional(2)
    rows = first.rank - 2 if first_zero is not None and first_zero.rank == 1 and first_zero.shape != (1,) else None
    second_zero = c.optional(3)
    c.result(matrix_product(c, without_zero(c, first, first_zero, axis=rows),
                            without_zero(c, second, second_zero, axis=second.rank - 1)))


@operator("QLinearMatMul")
def qlinear_matmul(node: Node, c: Context) -> None:
    first, second, zero = c.input(0), c.input(3), c.input(7)
    sums = matrix_product(c, without_zero(c, first, c.input(2)),
                          without_zero(c, second, c.input(5), axis=second.rank - 1))
    c.result(requantised(c, sums, [c.input(1), c.input(4), c.input(6)], zero, zero.dtype))


@operator("QGemm", domains=(MICROSOFT,))
def qgemm(node: Node, c: Context) -> None:
    first, second = c.input(0), c.input(3)
    axis = 0 if node.attributes.get("transB", 0) else 1
    a, b = without_zero(c, first, c.input(2)), without_zero(c, second, c.input(5), axis=axis)
    plain = Node("", "Gemm", node.name, (), (), {
        word: node.attributes[word] for word in ("transA", "transB") if word in node.attributes}, node.proto)
    sums = _gemm(c, plain, a, b, None)
    if (bias := c.optional(6)) is not None:
        sums = sum_of(c, sums, bias)
    if c.optional(7) is None:
        scale = arithmetic(c, "Mul", c.input(1), c.input(4))
        c.result(arithmetic(c, "Mul", cast(c, sums, np.dtype(np.float32)), scale))
        return
    zero = c.optional(8)
    c.result(requantised(c, sums, [c.input(1), c.input(4), c.input(7)], zero,
                         first.dtype if zero is None else zero.dtype))


@operator("FusedMatMul", "TransposeMatMul", domains=(MICROSOFT,))
def fused_matmul(node: Node, c: Context) -> None:
    values = []
    for index, word in enumerate(("transA", "transB")):
        value = c.input(index)
        if node.attributes.get(word, 0) and value.rank > 1:
            steps = strides_of(value.shape)
            order = [*range(value.rank - 2), value.rank - 1, value.rank - 2]
            value = moved(c, value, [value.shape[at] for at in order], [steps[at] for at in order])
        values.append(value)
    c.result(_times(c, matrix_product(c, *values), node.attributes.get("alpha", 1.0)))


@operator("MatMulIntegerToFloat", domains=(MICROSOFT,))
def matmul_to_float(node: Node, c: Context) -> None:
    second = c.input(1)
    sums = matrix_product(c, without_zero(c, c.input(0), c.optional(4)),
                          without_zero(c, second, c.optional(5), axis=second.rank - 1))
    scale = arithmetic(c, "Mul", c.input(2), c.input(3))
    result = arithmetic(c, "Mul", cast(c, sums, np.dtype(np.float32)), scale)
    c.result(result if c.optional(6) is None else sum_of(c, result, c.input(6)))
