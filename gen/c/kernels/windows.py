"""Convolutions and pooling: windows over one to three axes of space."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gen.c.context import Context
from gen.c.helper import instance
from gen.c.kernels.arithmetic import spelled
from gen.c.kernels.products import accumulator, requantised, without_zero
from gen.c.kernels.reductions import reduced
from gen.c.registry import operator
from gen.c.text import c_type
from gen.c.value import Value
from gen.onnx.model import Node, NodeError

__all__ = ["pooled"]

#: Axes of space of the kernels in C; what has fewer has ones in front.
_AXES = 3

#: What windows are like, as numbers in C: samples, groups, channels of a group that go in and come out; sizes of
#: inputs, results and kernels, steps, dilations, padding in front and after, three each.
_PLACES = """
enum { OP_SAMPLES, OP_GROUPS, OP_IN, OP_OUT, OP_SIZE, OP_RESULT = 7, OP_KERNEL = 10, OP_STRIDE = 13, OP_DILATION = 16,
       OP_PAD = 19, OP_PAD_END = 22 };
"""
_WINDOW = instance("places", _PLACES)
_CONV = """
static void $name(const size_t *w, const $A *x, const $B *weights, const $C *bias, $C *y)
{
    const size_t *const size = w + OP_SIZE, *const result = w + OP_RESULT, *const kernel = w + OP_KERNEL;
    const size_t *const stride = w + OP_STRIDE, *const dilation = w + OP_DILATION, *const pad = w + OP_PAD;
    const size_t plane = size[0] * size[1] * size[2], taps = kernel[0] * kernel[1] * kernel[2];
    const size_t filters = w[OP_GROUPS] * w[OP_OUT];
    for (size_t n = 0u; n < w[OP_SAMPLES] * filters; ++n) {
        const size_t out = n % filters, group = out / w[OP_OUT];
        const $A *const image = x + (n / filters * w[OP_GROUPS] + group) * w[OP_IN] * plane;
        for (size_t i = 0u; i < result[0]; ++i)
            for (size_t j = 0u; j < result[1]; ++j)
                for (size_t k = 0u; k < result[2]; ++k) {
                    const $B *tap = weights + $filter;
                    $C total = bias != NULL ? bias[out] : 0;
                    for (size_t in = 0u; in < w[OP_IN]; ++in, tap += $next) {
                        const $A *const source = image + in * plane;
                        for (size_t d = 0u; d < kernel[0]; ++d)
                            for (size_t h = 0u; h < kernel[1]; ++h) {
                                /* Places before the image are beyond its end, as they wrap around. */
                                const size_t at = $at0, row = $at1;
                                if (!($inside0 && $inside1))
                                    continue;
                                const $A *const line = source + ($place0 * size[1] + $place1) * size[2];
                                for (size_t v = 0u; v < kernel[2]; ++v) {
                                    const size_t column = $at2;
                                    if ($inside2)
                                        total += ($C)line[$place2] * ($C)tap[(d * kernel[1] + h) * kernel[2] + v];
                                }
                            }
                    }
                    *y++ = total;
                }
    }
}
"""
_POOL = """
static void $name(const size_t *w, const $T *x, $T *y)
{
    const size_t *const size = w + OP_SIZE, *const result = w + OP_RESULT, *const kernel = w + OP_KERNEL;
    const size_t *const stride = w + OP_STRIDE, *const dilation = w + OP_DILATION, *const pad = w + OP_PAD;
    const size_t plane = size[0] * size[1] * size[2];
    for (size_t n = 0u; n < w[OP_SAMPLES] * w[OP_IN]; ++n, x += plane)
        for (size_t i = 0u; i < result[0]; ++i)
            for (size_t j = 0u; j < result[1]; ++j)
                for (size_t k = 0u; k < result[2]; ++k) {
                    $T total = $first;
                    size_t inside = 0u, padded = 0u;
                    for (size_t d = 0u; d < kernel[0]; ++d)
                        for (size_t h = 0u; h < kernel[1]; ++h)
                            for (size_t v = 0u; v < kernel[2]; ++v) {
                                const size_t at[3] = {i * stride[0] + d * dilation[0], j * stride[1] + h * dilation[1],
                                                      k * stride[2] + v * dilation[2]};
                                int within = 1, counted = 1;
                                for (size_t axis = 0u; axis < 3u; ++axis) {
                                    within = within && at[axis] - pad[axis] < size[axis];
                                    counted = counted && at[axis] < pad[axis] + size[axis] + w[OP_PAD_END + axis];
                                }
                                padded += counted ? 1u : 0u;
                                if (within) {
                                    const $T x0 = x[((at[0] - pad[0]) * size[1] + (at[1] - pad[1])) * size[2]
                                                    + (at[2] - pad[2])];
                                    total = $each;
                                    ++inside;
                                }
                            }
                    (void)inside;
                    (void)padded;
                    *y++ = $last;
                }
}
"""


@dataclass(frozen=True)
class _Windows:
    """What the attributes of a node say of its windows."""

    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    results: tuple[int, ...]

    def numbers(self, samples: int, groups: int, into: int, out: int) -> list[int]:
        def all_axes(values: Sequence[int], fill: int) -> list[int]:
            return [fill] * (_AXES - len(values)) + list(values)

        return [samples, groups, into, out, *all_axes(self.sizes, 1), *all_axes(self.results, 1),
                *all_axes(self.kernel, 1), *all_axes(self.strides, 1), *all_axes(self.dilations, 1),
                *all_axes(self.begin, 0), *all_axes(self.end, 0)]


def _windows(node: Node, c: Context, sizes: Sequence[int], kernel: Sequence[int]) -> _Windows:
    axes = len(sizes)
    if not 1 <= axes <= _AXES:
        raise c.refusal(f"over {axes} axes of space")
    attributes = node.attributes
    strides = tuple(attributes.get("strides") or [1] * axes)
    dilations = tuple(attributes.get("dilations") or [1] * axes)
    pads = tuple(attributes.get("pads") or [0] * 2 * axes)
    begin, end = pads[:axes], pads[axes:]
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    auto = attributes.get("auto_pad", "NOTSET")
    if auto == "VALID":
        begin = end = (0,) * axes
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        total = [max((-(-size // s) - 1) * s + span - size, 0)
                 for size, s, span in zip(sizes, strides, spans, strict=True)]
        few = tuple(one // 2 for one in total)
        many = tuple(one - one // 2 for one in total)
        begin, end = (few, many) if auto == "SAME_UPPER" else (many, few)
    results = []
    for size, span, s, low, high in zip(sizes, spans, strides, begin, end, strict=True):
        room = size + low + high - span
        count = (-(-room // s) if attributes.get("ceil_mode", 0) else room // s) + 1
        if attributes.get("ceil_mode", 0) and (count - 1) * s >= size + low:
            count -= 1
        results.append(count)
    if min(results) < 1:
        raise NodeError(f"its windows of {tuple(kernel)} do not fit {tuple(sizes)}", code="bad-shape")
    return _Windows(tuple(sizes), tuple(kernel), strides, dilations, tuple(begin), tuple(end), tuple(results))


_FORWARD = {
    "filter": "out * w[OP_IN] * taps", "next": "taps",
    "at0": "i * stride[0] + d * dilation[0] - pad[0]", "at1": "j * stride[1] + h * dilation[1] - pad[1]",
    "at2": "k * stride[2] + v * dilation[2] - pad[2]", "inside0": "at < size[0]", "inside1": "row < size[1]",
    "inside2": "column < size[2]", "place0": "at", "place1": "row", "place2": "column"}
#: Of the transposed convolution: which input a tap of the result is from, if it is from one.
_BACKWARD = {
    "filter": "(group * w[OP_IN] * w[OP_OUT] + out % w[OP_OUT]) * taps", "next": "w[OP_OUT] * taps",
    "at0": "i + pad[0] - d * dilation[0]", "at1": "j + pad[1] - h * dilation[1]",
    "at2": "k + pad[2] - v * dilation[2]",
    **{f"inside{n}": f"{word} % stride[{n}] == 0u && {word} / stride[{n}] < size[{n}]"
       for n, word in enumerate(("at", "row", "column"))},
    **{f"place{n}": f"({word} / stride[{n}])" for n, word in enumerate(("at", "row", "column"))}}


def _convolved(c: Context, value: Value, weights: Value, bias: Value | None, windows: _Windows, groups: int,
               filters: int, *, backward: bool = False) -> Value:
    a, b = c_type(value.dtype), c_type(weights.dtype)
    dtype = accumulator(value.dtype)
    shape = c.known(value)
    helper = instance(f"{'deconv' if backward else 'conv'}_{a.suffix}_{b.suffix}", _CONV, (_WINDOW,), A=a.name,
                      B=b.name, C=c_type(dtype).name, **(_BACKWARD if backward else _FORWARD))
    result = c.new(dtype, (shape[0], filters, *windows.results))
    numbers = windows.numbers(shape[0], groups, shape[1] // groups, filters // groups)
    c.call(helper, numbers, value, weights, "NULL" if bias is None else bias, result)
    return result


@operator("Conv")
def conv(node: Node, c: Context) -> None:
    value, weights = c.input(0), c.input(1)
    kernel = c.known(weights)
    windows = _windows(node, c, c.known(value)[2:], kernel[2:])
    c.result(_convolved(c, value, weights, c.optional(2), windows, int(node.attributes.get("group", 1)), kernel[0]))


@operator("ConvInteger")
def conv_integer(node: Node, c: Context) -> None:
    value, weights = c.input(0), c.input(1)
    kernel = c.known(weights)
    windows = _windows(node, c, c.known(value)[2:], kernel[2:])
    c.result(_convolved(c, without_zero(c, value, c.optional(2)), without_zero(c, weights, c.optional(3), axis=0),
                        None, windows, int(node.attributes.get("group", 1)), kernel[0]))


@operator("QLinearConv")
def qlinear_conv(node: Node, c: Context) -> None:
    value, weights, zero = c.input(0), c.input(3), c.input(7)
    kernel = c.known(weights)
    windows = _windows(node, c, c.known(value)[2:], kernel[2:])
    sums = _convolved(c, without_zero(c, value, c.input(2)), without_zero(c, weights, c.input(5), axis=0),
                      c.optional(8), windows, int(node.attributes.get("group", 1)), kernel[0])
    c.result(requantised(c, sums, [c.input(1), c.input(4), c.input(6)], zero, zero.dtype, axes=len(kernel) - 2))


@operator("ConvTranspose")
def conv_transpose(node: Node, c: Context) -> None:
    value, weights = c.input(0), c.input(1)
    shape, kernel = c.known(value), c.known(weights)
    groups, axes = int(node.attributes.get("group", 1)), value.rank - 2
    if not 1 <= axes <= _AXES:
        raise c.refusal(f"over {axes} axes of space")
    attributes = node.attributes
    strides = tuple(attributes.get("strides") or [1] * axes)
    dilations = tuple(attributes.get("dilations") or [1] * axes)
    more = tuple(attributes.get("output_padding") or [0] * axes)
    pads = tuple(attributes.get("pads") or [0] * 2 * axes)
    begin, end = list(pads[:axes]), list(pads[axes:])
    full = [(size - 1) * s + (k - 1) * d + 1 + extra
            for size, s, k, d, extra in zip(shape[2:], strides, kernel[2:], dilations, more, strict=True)]
    auto = attributes.get("auto_pad", "NOTSET")
    wanted = attributes.get("output_shape")
    if auto in ("SAME_UPPER", "SAME_LOWER") and not wanted:
        wanted = [size * s for size, s in zip(shape[2:], strides, strict=True)]
    if wanted:
        wanted = wanted[-axes:]
        total = [max(whole - one, 0) for whole, one in zip(full, wanted, strict=True)]
        small, large = [one // 2 for one in total], [one - one // 2 for one in total]
        begin, end = (small, large) if auto == "SAME_UPPER" else (large, small)
        results = list(wanted)
    else:
        results = [whole - low - high for whole, low, high in zip(full, begin, end, strict=True)]
    windows = _Windows(shape[2:], kernel[2:], strides, dilations, tuple(begin), tuple(end), tuple(results))
    c.result(_convolved(c, value, weights, c.optional(2), windows, groups, kernel[1] * groups, backward=True))


def pooled(c: Context, value: Value, windows: _Windows, name: str, first: str, each_text: str, last: str) -> Value:
    kind = c_type(value.dtype)
    shape = c.known(value)
    helper = instance(f"{name}_{kind.suffix}", _POOL, (_WINDOW,), T=kind.name,
                      **{word: spelled(text, value.dtype)
                         for word, text in (("first", first), ("each", each_text), ("last", last))})
    result = c.new(value.dtype, (*shape[:2], *windows.results))
    c.call(helper, windows.numbers(shape[0], 1, shape[1], shape[1]), value, result)
    return result


@operator("MaxPool", "AveragePool", "LpPool")
def pool(node: Node, c: Context) -> None:
    value = c.input(0)
    windows = _windows(node, c, c.known(value)[2:], node.attributes["kernel_shape"])
    if node.op == "MaxPool":
        if c.wants(1):
            raise c.refusal("with indices")
        low = "-INFINITY" if value.dtype.kind == "f" else f"{np.iinfo(value.dtype).min}"
        result = pooled(c, value, windows, "maxpool", low, "x0 > total ? x0 : total", "total")
    elif node.op == "AveragePool":
        counted = "padded" if node.attributes.get("count_include_pad", 0) else "inside"
        result = pooled(c, value, windows, f"avgpool_{counted}", "0.0$f", "total + x0",
                        f"total / ($T){counted}")
    else:
        if node.attributes.get("p", 2) != 2:
            raise c.refusal(f"with p = {node.attributes['p']}")
        result = pooled(c, value, windows, "l2pool", "0.0$f", "total + x0 * x0", "sqrt$f(total)")
    c.result(result)


@operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(node: Node, c: Context) -> None:
    value = c.input(0)
    op = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax",
          "GlobalLpPool": f"ReduceL{node.attributes.get('p', 2)}"}[node.op]
    c.result(reduced(c, op, value, list(range(2, value.rank)), keep=True))
