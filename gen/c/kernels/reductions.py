"""Operations that go over whole axes: sums and the like, softmax, the largest, running sums."""

from collections.abc import Sequence

import numpy as np

from gen.c.context import Context
from gen.c.each import each
from gen.c.helper import Helper, instance
from gen.c.kernels.arithmetic import spelled, sum_of
from gen.c.kernels.movement import axes_of, axis_of
from gen.c.registry import operator
from gen.c.text import c_type, literal
from gen.c.value import Dim, Size, Value, most, product, strides_of
from gen.c.walk import ROWS, walk
from gen.onnx.model import Node

__all__ = ["float_sum", "reduced"]

_REDUCE = """
/* `kept`: the results, and where in x each begins; `along`: what belongs to one. */
static void $name(const size_t *kept, const size_t *along, const $T *x, $T *y)
{
    const size_t rows = op_rows(kept), count = kept[kept[0]], step = op_step(kept, 0u);
    const size_t inner = op_rows(along), length = along[along[0]], sx = op_step(along, 0u);
    for (size_t row = 0u; row < rows; ++row)
        for (size_t i = 0u; i < count; ++i) {
            const $T *const base = x + (op_offset(kept, 0u, row) + i * step);
            $A total = $first;
            for (size_t r = 0u; r < inner; ++r) {
                const $T *const source = base + op_offset(along, 0u, r);
                for (size_t k = 0u; k < length; ++k) {
                    const $A x0 = source[k * sx];
                    total = $each;
                }
            }
            *y++ = $last;
        }
}
"""
#: What a total begins with, what an element makes of it, what it is in the end.
_FLOAT = {
    "ReduceSum": ("0.0$f", "total + x0", "total"),
    "ReduceMean": ("0.0$f", "total + x0", "total / ($T)(inner * length)"),
    "ReduceMax": ("-INFINITY", "x0 > total || isnan(x0) ? x0 : total", "total"),
    "ReduceMin": ("INFINITY", "x0 < total || isnan(x0) ? x0 : total", "total"),
    "ReduceProd": ("1.0$f", "total * x0", "total"),
    "ReduceL1": ("0.0$f", "total + fabs$f(x0)", "total"),
    "ReduceL2": ("0.0$f", "total + x0 * x0", "sqrt$f(total)"),
    "ReduceSumSquare": ("0.0$f", "total + x0 * x0", "total"),
    "ReduceLogSum": ("0.0$f", "total + x0", "log$f(total)"),
}
_INTEGER = {
    "ReduceSum": ("0", "($A)(($W)total + ($W)x0)", "total"),
    "ReduceMean": ("0", "($A)(($W)total + ($W)x0)", "(inner * length != 0u ? ($T)(total / ($A)(inner * length)) : 0)"),
    "ReduceMax": ("$L", "x0 > total ? x0 : total", "total"),
    "ReduceMin": ("$H", "x0 < total ? x0 : total", "total"),
    "ReduceProd": ("1", "($A)(($W)total * ($W)x0)", "total"),
    "ReduceSumSquare": ("0", "($A)(($W)total + ($W)x0 * ($W)x0)", "total"),
    "ReduceL1": ("0", "x0 < 0 ? ($A)(($W)total - ($W)x0) : ($A)(($W)total + ($W)x0)", "total"),
}


def _split(value: Value, axes: Sequence[int]) -> tuple[list[Dim], list[Dim]]:
    """The walks over the axes that stay and over those that are reduced."""
    steps = strides_of(value.shape)
    kept = [at for at in range(value.rank) if at not in axes]
    return (walk([value.shape[at] for at in kept], [steps[at] for at in kept]),
            walk([value.shape[at] for at in axes], [steps[at] for at in axes]))


def _helper(op: str, dtype: np.dtype, wide: str, first: str, step: str, last: str) -> Helper:
    kind = c_type(dtype)
    return instance(f"{op.lower()}_{kind.suffix}", _REDUCE, ROWS, T=kind.name, A=wide, first=first, each=step,
                    last=last)


def float_sum(dtype: np.dtype) -> Helper:
    """A function in C: for each element of a walk the sum of the elements of a second walk, which begins there."""
    return _helper("ReduceSum", dtype, c_type(dtype).name, *(spelled(text, dtype) for text in _FLOAT["ReduceSum"]))


def reduced(c: Context, op: str, value: Value, axes: Sequence[int], *, keep: bool) -> Value:
    """``op``: ReduceSum, and so on. Raises NodeError for what it is not there for."""
    kind = c_type(value.dtype)
    table = _FLOAT if value.dtype.kind == "f" else _INTEGER
    if op not in table:
        raise c.refusal(f"of {value.dtype}")
    same = value.dtype.kind == "f" or value.dtype.itemsize == 8 or op in ("ReduceMax", "ReduceMin")
    wide = kind.name if same else "int32_t" if value.dtype.kind == "i" else "uint32_t"
    if value.dtype.kind in "iu" and op == "ReduceL1" and value.dtype.kind == "u":
        op = "ReduceSum"
    low, high = ("0", "1") if value.dtype.kind in "bf" else (
        literal(bound, value.dtype) for bound in (np.iinfo(value.dtype).min, np.iinfo(value.dtype).max))
    first, step, last = (spelled(text.replace("$A", wide).replace("$L", low).replace("$H", high), value.dtype)
                         for text in table[op])
    if value.dtype.kind != "f":
        last = f"({kind.name}){last}"
    helper = _helper(op, value.dtype, wide, first, step, last)
    shape = [1 if at in axes else dim for at, dim in enumerate(value.shape)]
    result = c.new(value.dtype, shape)
    kept, along = _split(value, axes)
    c.call(helper, kept, along, value, result)
    return result if keep else c.alias(result, [dim for at, dim in enumerate(shape) if at not in axes])


@operator(*_FLOAT)
def reduce(node: Node, c: Context) -> None:
    value = c.input(0)
    axes = axes_of(node, c, value.rank)
    if not axes:
        if axes is not None and node.attributes.get("noop_with_empty_axes", 0) or (
                axes is None and node.attributes.get("noop_with_empty_axes", 0)):
            if node.op not in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"):
                raise c.refusal("with no axes")
            c.result(value)
            return
        axes = list(range(value.rank))
    c.result(reduced(c, node.op, value, axes, keep=bool(node.attributes.get("keepdims", 1))))


@operator("ReduceLogSumExp")
def log_sum_exp(node: Node, c: Context) -> None:
    value = c.input(0)
    axes = axes_of(node, c, value.rank) or list(range(value.rank))
    kind = value.dtype
    top = reduced(c, "ReduceMax", value, axes, keep=True)
    powers = each(c, "expsub", spelled("exp$f(x0 - x1)", kind), [value, top], kind)
    total = reduced(c, "ReduceLogSum", powers, axes, keep=True)
    result = sum_of(c, total, top)
    if not node.attributes.get("keepdims", 1):
        result = c.alias(result, [dim for at, dim in enumerate(result.shape) if at not in axes])
    c.result(result)


_SOFTMAX = """
static void $name(size_t outer, size_t count, size_t inner, const $T *x, $T *y)
{
    for (size_t o = 0u; o < outer; ++o, x += count * inner, y += count * inner)
        for (size_t i = 0u; i < inner; ++i) {
            $T top = -INFINITY, total = 0.0$f;
            for (size_t k = 0u; k < count; ++k)
                top = x[k * inner + i] > top ? x[k * inner + i] : top;
            for (size_t k = 0u; k < count; ++k) {
                const $T power = exp$f(x[k * inner + i] - top);
                total += power;
                y[k * inner + i] = $kept;
            }
$finish
        }
}
"""
_FINISH = """
            for (size_t k = 0u; k < count; ++k)
                y[k * inner + i] $finish;
"""


@operator("Softmax", "LogSoftmax")
def softmax(node: Node, c: Context) -> None:
    value = c.input(0)
    if value.dtype.kind != "f":
        raise c.refusal(f"of {value.dtype}")
    c.result(softmax_of(c, value, axis_of(node, value.rank, 1 if c.opset < 13 else -1), log=node.op == "LogSoftmax",
                        flat=c.opset < 13))


def softmax_of(c: Context, value: Value, axis: int, *, log: bool, flat: bool) -> Value:
    """``flat``: over all axes from that one on, as before operator set 13."""
    kind = c_type(value.dtype)
    f = "f" if value.dtype == np.float32 else ""
    helper = instance(
        f"{'log_softmax' if log else 'softmax'}_{kind.suffix}", _SOFTMAX, T=kind.name, f=f,
        kept="x[k * inner + i] - top" if log else "power",
        finish=(("            total = log$f(total);\n" if log else "") + _FINISH.strip("\n")).replace("$finish", (
            "-= total" if log else "/= total")).replace("$f", f))
    result = c.like(value)
    split = (value.shape[:axis], value.shape[axis:], ()) if flat else (
        value.shape[:axis], value.shape[axis:axis + 1], value.shape[axis + 1:])
    c.call(helper, *(product(part) for part in split), value, result)
    return result


@operator("Hardmax")
def hardmax(node: Node, c: Context) -> None:
    value = c.input(0)
    axis = axis_of(node, value.rank, 1 if c.opset < 13 else -1)
    if c.opset < 13:
        flat = c.alias(value, (product(value.shape[:axis]), product(value.shape[axis:])))
        c.result(c.alias(_hardmax(c, flat, 1), value.shape))
    else:
        c.result(_hardmax(c, value, axis))


def _hardmax(c: Context, value: Value, axis: int) -> Value:
    top = _arg(c, value, axis, largest=True, last=False)
    index = Value(np.dtype(np.int64), tuple(most(dim) if at == axis else 1 for at, dim in enumerate(value.shape)),
                  array=np.arange(most(value.shape[axis])).reshape(
                      [-1 if at == axis else 1 for at in range(value.rank)]))
    kind = c_type(value.dtype).name
    return each(c, "one_hot", f"x0 == x1 ? ({kind})1 : ({kind})0", [top, index], value.dtype)


_ARG = """
static void $name(size_t outer, size_t count, size_t inner, const $T *x, int64_t *y)
{
    for (size_t o = 0u; o < outer; ++o, x += count * inner)
        for (size_t i = 0u; i < inner; ++i) {
            size_t best = 0u;
            for (size_t k = 1u; k < count; ++k)
                if (x[k * inner + i] $sign x[best * inner + i])
                    best = k;
            *y++ = (int64_t)best;
        }
}
"""


def _arg(c: Context, value: Value, axis: int, *, largest: bool, last: bool) -> Value:
    kind = c_type(value.dtype)
    sign = (">" if largest else "<") + ("=" if last else "")
    helper = instance(f"arg{'max' if largest else 'min'}{'_last' if last else ''}_{kind.suffix}", _ARG, T=kind.name,
                      sign=sign)
    result = c.new(np.int64, [1 if at == axis else dim for at, dim in enumerate(value.shape)])
    c.call(helper, product(value.shape[:axis]), value.shape[axis], product(value.shape[axis + 1:]), value, result)
    return result


@operator("ArgMax", "ArgMin")
def arg(node: Node, c: Context) -> None:
    value = c.input(0)
    axis = axis_of(node, value.rank)
    result = _arg(c, value, axis, largest=node.op == "ArgMax", last=bool(node.attributes.get("select_last_index", 0)))
    if not node.attributes.get("keepdims", 1):
        result = c.alias(result, [dim for at, dim in enumerate(result.shape) if at != axis])
    c.result(result)


_CUMULATE = """
static void $name(size_t outer, size_t count, size_t inner, int exclusive, int reverse, const $T *x, $T *y)
{
    for (size_t o = 0u; o < outer; ++o, x += count * inner, y += count * inner)
        for (size_t i = 0u; i < inner; ++i) {
            $T total = 0;
            for (size_t k = 0u; k < count; ++k) {
                const size_t at = (reverse ? count - 1u - k : k) * inner + i;
                const $T before = total;
                total = $sum;
                y[at] = exclusive ? before : total;
            }
        }
}
"""


@operator("CumSum")
def cumulate(node: Node, c: Context) -> None:
    value, axes = c.input(0), c.constant(1)
    assert axes is not None
    axis = int(axes.item()) % value.rank
    kind = c_type(value.dtype)
    text = "total + x[at]" if value.dtype.kind == "f" else "($T)(($W)total + ($W)x[at])"
    result = c.new(value.dtype, value.shape)
    c.call(instance(f"cumsum_{kind.suffix}", _CUMULATE, T=kind.name, sum=spelled(text, value.dtype)),
           product(value.shape[:axis]), value.shape[axis], product(value.shape[axis + 1:]),
           str(int(node.attributes.get("exclusive", 0))), str(int(node.attributes.get("reverse", 0))), value, result)
    c.result(result)


_TOP = """
/* The `wanted` largest or smallest of each line, in order; of equal ones the first. */
static void $name(size_t outer, size_t count, size_t inner, size_t wanted, const $T *x, $T *y, int64_t *places)
{
    for (size_t o = 0u; o < outer; ++o, x += count * inner, y += wanted * inner, places += wanted * inner)
        for (size_t i = 0u; i < inner; ++i) {
            size_t found = 0u;
            for (size_t k = 0u; k < count; ++k) {
                const $T one = x[k * inner + i];
                size_t at = found;
                if (found == wanted && (wanted == 0u || !(one $sign y[(wanted - 1u) * inner + i])))
                    continue;
                for (at = found < wanted ? found++ : wanted - 1u; at > 0u && one $sign y[(at - 1u) * inner + i]; --at) {
                    y[at * inner + i] = y[(at - 1u) * inner + i];
                    places[at * inner + i] = places[(at - 1u) * inner + i];
                }
                y[at * inner + i] = one;
                places[at * inner + i] = (int64_t)k;
            }
        }
}
"""


@operator("TopK")
def top(node: Node, c: Context) -> None:
    value = c.input(0)
    axis = axis_of(node, value.rank, -1)
    number = node.attributes.get("k") if c.opset < 10 else None
    if number is None:
        array = c.constant(1)
        assert array is not None
        number = array.item()
    wanted: Dim = int(number)
    size = value.shape[axis]
    if isinstance(size, Size):
        wanted = Size(f"({size.text} < {number}u ? {size.text} : {number}u)", min(int(number), size.maximum))
    largest = bool(node.attributes.get("largest", 1))
    kind = c_type(value.dtype)
    shape = [wanted if at == axis else dim for at, dim in enumerate(value.shape)]
    values, places = c.new(value.dtype, shape), c.new(np.int64, shape)
    helper = instance(f"{'largest' if largest else 'smallest'}_{kind.suffix}", _TOP, T=kind.name,
                      sign=">" if largest else "<")
    c.call(helper, product(value.shape[:axis]), size, product(value.shape[axis + 1:]), wanted, value, values, places)
    c.result(values)
    c.result(places, 1)
