"""Normalisation: over layers, groups, instances, batches, and across channels."""

from collections.abc import Sequence

import numpy as np

from gen.c.context import Context
from gen.c.copies import moved
from gen.c.each import each
from gen.c.helper import Helper, instance
from gen.c.kernels.arithmetic import arithmetic, spelled, sum_of
from gen.c.kernels.movement import axis_of, padded
from gen.c.kernels.reductions import float_sum, reduced
from gen.c.registry import operator
from gen.c.text import c_type, literal
from gen.c.value import Dim, Value, product, strides_of
from gen.c.walk import walk
from gen.onnx.model import MICROSOFT, Node

__all__: list[str] = []

_NORMALISE = """
/* Each row less its mean, in units of its deviation. */
static void $name(size_t rows, size_t count, $T epsilon, const $T *x, $T *y, $T *means, $T *factors)
{
    for (size_t row = 0u; row < rows; ++row, x += count, y += count) {
        $T total = 0.0$f, squares = 0.0$f;
        for (size_t i = 0u; i < count; ++i)
            total += x[i];
        const $T mean = total / ($T)count;
        for (size_t i = 0u; i < count; ++i)
            squares += (x[i] - mean) * (x[i] - mean);
        const $T factor = 1.0$f / sqrt$f(squares / ($T)count + epsilon);
        for (size_t i = 0u; i < count; ++i)
            y[i] = (x[i] - mean) * factor;
        if (means != NULL)
            means[row] = mean;
        if (factors != NULL)
            factors[row] = factor;
    }
}
"""
_ROOT = """
/* Each row in units of the root of its mean square. */
static void $name(size_t rows, size_t count, $T epsilon, const $T *x, $T *y)
{
    for (size_t row = 0u; row < rows; ++row, x += count, y += count) {
        $T squares = 0.0$f;
        for (size_t i = 0u; i < count; ++i)
            squares += x[i] * x[i];
        const $T factor = 1.0$f / sqrt$f(squares / ($T)count + epsilon);
        for (size_t i = 0u; i < count; ++i)
            y[i] = x[i] * factor;
    }
}
"""


def _typed(name: str, template: str, dtype: np.dtype) -> Helper:
    kind = c_type(dtype)
    return instance(f"{name}_{kind.suffix}", template, T=kind.name, f="f" if dtype == np.float32 else "")


def _epsilon(node: Node, dtype: np.dtype) -> str:
    return literal(np.float32(node.attributes.get("epsilon", 1e-5)), np.dtype(np.float32))


def normalised(c: Context, node: Node, value: Value, rows: Dim, count: Dim,
               statistics: Sequence[Value | None] = ()) -> Value:
    """Rows of so many elements, each with mean 0 and deviation 1."""
    result = c.like(value)
    places = [one if one is not None else "NULL" for one in (*statistics, None, None)[:2]]
    c.call(_typed("normalise", _NORMALISE, value.dtype), rows, count, _epsilon(node, value.dtype), value, result,
           *places)
    return result


def scaled(c: Context, value: Value, scale: Value | None, bias: Value | None) -> Value:
    if scale is not None and bias is not None:
        return each(c, "affine", spelled("x0 * x1 + x2", value.dtype), [value, scale, bias], value.dtype)
    if scale is not None:
        return arithmetic(c, "Mul", value, scale)
    return value if bias is None else sum_of(c, value, bias)


@operator("LayerNormalization")
def layer_normalization(node: Node, c: Context) -> None:
    _layer_normalization(node, c, c.input(0), c.optional(1), c.optional(2), first=1)


def _layer_normalization(node: Node, c: Context, value: Value, scale: Value | None, bias: Value | None, *,
                         first: int) -> None:
    axis = axis_of(node, value.rank, -1)
    shape = [*value.shape[:axis], *[1] * (value.rank - axis)]
    statistics = [c.new(value.dtype, shape) if c.wants(first + n) else None for n in range(2)]
    result = normalised(c, node, value, product(value.shape[:axis]), product(value.shape[axis:]), statistics)
    c.result(scaled(c, result, scale, bias))
    for index, one in enumerate(statistics, first):
        if one is not None:
            c.result(one, index)


@operator("SkipLayerNormalization", domains=(MICROSOFT,))
def skip_layer_normalization(node: Node, c: Context) -> None:
    value = sum_of(c, c.input(0), c.input(1))
    if (bias := c.optional(4)) is not None:
        value = sum_of(c, value, bias)
    _layer_normalization(node, c, value, c.input(2), c.optional(3), first=1)
    c.result(value, 3)


@operator("RMSNormalization", "SimplifiedLayerNormalization")
def root_normalization(node: Node, c: Context) -> None:
    value = c.input(0)
    axis = axis_of(node, value.rank, -1)
    result = c.like(value)
    c.call(_typed("root_normalise", _ROOT, value.dtype), product(value.shape[:axis]), product(value.shape[axis:]),
           _epsilon(node, value.dtype), value, result)
    c.result(scaled(c, result, c.optional(1), None))


def _by_channel(c: Context, parameter: Value, rank: int) -> Value:
    return c.alias(parameter, (*parameter.shape, *[1] * (rank - 2)))


@operator("InstanceNormalization")
def instance_normalization(node: Node, c: Context) -> None:
    value = c.input(0)
    result = normalised(c, node, value, product(value.shape[:2]), product(value.shape[2:]))
    c.result(scaled(c, result, *(_by_channel(c, c.input(index), value.rank) for index in (1, 2))))


@operator("GroupNormalization")
def group_normalization(node: Node, c: Context) -> None:
    value = c.input(0)
    shape, groups = c.known(value), int(node.attributes["num_groups"])
    result = normalised(c, node, value, shape[0] * groups, int(np.prod(shape[1:])) // groups)
    scale, bias = c.input(1), c.input(2)
    if c.opset < 21:    # one for each group
        repeated = [moved(c, one, (groups, shape[1] // groups), (1, 0)) for one in (scale, bias)]
        scale, bias = (c.alias(one, (shape[1],)) for one in repeated)
    c.result(scaled(c, result, _by_channel(c, scale, value.rank), _by_channel(c, bias, value.rank)))


@operator("BatchNormalization")
def batch_normalization(node: Node, c: Context) -> None:
    value = c.input(0)
    scale, bias, mean, variance = (c.constant(index) for index in (1, 2, 3, 4))
    if node.attributes.get("training_mode", 0) or any(one is None for one in (scale, bias, mean, variance)):
        raise c.refusal("in training")
    assert scale is not None and bias is not None and mean is not None and variance is not None
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + node.attributes.get("epsilon", 1e-5))
    shift = bias - mean * factor
    shape = (-1, *[1] * (value.rank - 2)) if value.rank > 1 else (-1,)
    operands = [array.astype(value.dtype).reshape(shape) for array in (factor, shift)]
    c.result(scaled(c, value, *(Value(value.dtype, one.shape, array=one) for one in operands)))


@operator("MeanVarianceNormalization")
def mean_variance(node: Node, c: Context) -> None:
    value = c.input(0)
    axes = [int(axis) % value.rank for axis in node.attributes.get("axes", [0, 2, 3])]
    mean = reduced(c, "ReduceMean", value, axes, keep=True)
    centred = arithmetic(c, "Sub", value, mean)
    square = reduced(c, "ReduceMean", each(c, "square", "x0 * x0", [centred], value.dtype), axes, keep=True)
    c.result(each(c, "over_root", spelled("x0 / (sqrt$f(x1) + 1e-9$f)", value.dtype), [centred, square], value.dtype))


@operator("LpNormalization")
def lp_normalization(node: Node, c: Context) -> None:
    value = c.input(0)
    axis = axis_of(node, value.rank, -1)
    length = reduced(c, f"ReduceL{int(node.attributes.get('p', 2))}", value, [axis], keep=True)
    zero = spelled("0.0$f", value.dtype)
    c.result(each(c, "over", f"x1 != {zero} ? x0 / x1 : {zero}", [value, length], value.dtype))


@operator("LRN")
def response_normalization(node: Node, c: Context) -> None:
    value = c.input(0)
    shape, size = c.known(value), int(node.attributes["size"])
    square = each(c, "square", "x0 * x0", [value], value.dtype)
    before = (size - 1) // 2
    wide = padded(c, square, [0, before, *[0] * (value.rank - 2)], [0, size - 1 - before, *[0] * (value.rank - 2)], 0.0)
    steps = strides_of(wide.shape)
    total = c.new(value.dtype, shape)
    kind = c_type(value.dtype)
    c.call(float_sum(value.dtype), walk(shape, steps), walk([size], [steps[1]]), wide, total)
    alpha, beta, bias = (literal(np.float32(node.attributes.get(word, default)), np.dtype(np.float32))
                         for word, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    c.result(each(c, f"lrn{size}", spelled(f"x0 / pow$f(bias + alpha / {size}.0$f * x1, beta)", value.dtype),
                  [value, total], value.dtype,
                  parameters={"alpha": (kind.name, alpha), "beta": (kind.name, beta), "bias": (kind.name, bias)}))
