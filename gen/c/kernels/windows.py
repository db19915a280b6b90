"""Convolutions and pooling: windows over one to three axes of space."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

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
#: Of the taps of a window along an axis those that are inside: the first, how many, and the place of the first.
_INSIDE = instance("inside", """
typedef struct { size_t first, count, place; } op_range;

static op_range $name(size_t begin, size_t pad, size_t apart, size_t size, size_t taps)
{
    op_range found = {0u, 0u, 0u};
    /* Places before the image are beyond its end, as they wrap around. */
    while (found.first < taps && begin + found.first * apart - pad >= size)
        ++found.first;
    found.place = begin + found.first * apart - pad;
    while (found.first + found.count < taps && found.place + found.count * apart < size)
        ++found.count;
    return found;
}
""")
#: The transposed convolution: which input a tap of the result is from, if it is from one.
_TRANSPOSED = """
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
                    const $B *tap = weights + (group * w[OP_IN] * w[OP_OUT] + out % w[OP_OUT]) * taps;
                    $C total = bias != NULL ? bias[out] : 0;
                    for (size_t in = 0u; in < w[OP_IN]; ++in, tap += w[OP_OUT] * taps) {
                        const $A *const source = image + in * plane;
                        for (size_t d = 0u; d < kernel[0]; ++d)
                            for (size_t h = 0u; h < kernel[1]; ++h) {
                                /* Places before the image are beyond its end, as they wrap around. */
                                const size_t at = i + pad[0] - d * dilation[0], row = j + pad[1] - h * dilation[1];
                                if (at % stride[0] != 0u || at / stride[0] >= size[0] || row % stride[1] != 0u
                                    || row / stride[1] >= size[1])
                                    continue;
                                const $A *const line = source + (at / stride[0] * size[1] + row / stride[1]) * size[2];
                                for (size_t v = 0u; v < kernel[2]; ++v) {
                                    const size_t column = k + pad[2] - v * dilation[2];
                                    if (column % stride[2] == 0u && column / stride[2] < size[2])
                                        total += ($C)line[column / stride[2]]
                                            * ($C)tap[(d * kernel[1] + h) * kernel[2] + v];
                                }
                            }
                    }
                    *y++ = total;
                }
    }
}
"""
#: The convolution. Results of a row whose windows lie within it are made by fours, so that a weight is read once for
#: them and no place is looked at; the last four may begin with some that have been made. Each is the sum of the same
#: products in the same order.
_CONV = """
static void $name(const size_t *w, const $A *x, const $B *weights, const $C *bias, $C *y)
{
    const size_t *const size = w + OP_SIZE, *const result = w + OP_RESULT, *const kernel = w + OP_KERNEL;
    const size_t *const stride = w + OP_STRIDE, *const dilation = w + OP_DILATION, *const pad = w + OP_PAD;
    const size_t plane = size[0] * size[1] * size[2], taps = kernel[0] * kernel[1] * kernel[2], width = kernel[2];
    const size_t filters = w[OP_GROUPS] * w[OP_OUT], step = stride[2], apart = dilation[2];
    /* Windows from the first to before the last one lie within a row. */
    const size_t span = (width - 1u) * apart, first = (pad[2] + step - 1u) / step;
    const size_t room = size[2] + pad[2] > span ? (size[2] + pad[2] - span - 1u) / step + 1u : 0u;
    const size_t last = room < result[2] ? room : result[2];
    for (size_t n = 0u; n < w[OP_SAMPLES] * filters; ++n) {
        const size_t out = n % filters, group = out / w[OP_OUT];
        const $A *const image = x + (n / filters * w[OP_GROUPS] + group) * w[OP_IN] * plane;
        const $B *const filter = weights + out * w[OP_IN] * taps;
        const $C start = bias != NULL ? bias[out] : 0;
        for (size_t i = 0u; i < result[0]; ++i) {
            const op_range deep = op_inside(i * stride[0], pad[0], dilation[0], size[0], kernel[0]);
            for (size_t j = 0u; j < result[1]; ++j) {
                const op_range high = op_inside(j * stride[1], pad[1], dilation[1], size[1], kernel[1]);
                for (size_t k = 0u; k < result[2];) {
                    const int whole = k >= first && k < last && first + 4u <= last;
                    if (whole && k + 4u > last)
                        k = last - 4u;
                    $C total0 = start, total1 = start, total2 = start, total3 = start;
                    for (size_t in = 0u; in < w[OP_IN]; ++in)
                        for (size_t d = 0u; d < deep.count; ++d) {
                            const size_t at = deep.place + d * dilation[0];
                            const $A *line = image + in * plane + (at * size[1] + high.place) * size[2];
                            const $B *tap = filter + in * taps + ((deep.first + d) * kernel[1] + high.first) * width;
                            for (size_t h = high.count; h > 0u; --h, line += dilation[1] * size[2])
                                if (whole) {
                                    const $A *four = line + (k * step - pad[2]);
                                    for (size_t v = width; v > 0u; --v, four += apart) {
                                        const $C weight = ($C)*tap++;
                                        total0 += ($C)four[0] * weight;
                                        total1 += ($C)four[step] * weight;
                                        total2 += ($C)four[2u * step] * weight;
                                        total3 += ($C)four[3u * step] * weight;
                                    }
                                } else {
                                    size_t column = k * step - pad[2];
                                    for (size_t v = width; v > 0u; --v, column += apart, ++tap)
                                        if (column < size[2])
                                            total0 += ($C)line[column] * ($C)*tap;
                                }
                        }
                    y[k++] = total0;
                    if (whole) {
                        y[k++] = total1;
                        y[k++] = total2;
                        y[k++] = total3;
                    }
                }
                y += result[2];
            }
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

    @property
    def pointwise(self) -> bool:
        """Whether results are made of what is at their own place."""
        return {*self.kernel, *self.strides} == {1} and not any((*self.begin, *self.end))

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


def _over_channels(windows: _Windows, channels: int) -> _Windows:
    """A pointwise convolution as one along a row: its channels are the taps, a plane apart."""
    plane = prod(windows.sizes)
    return _Windows((plane * channels,), (channels,), (1,), (plane,), (0,), (0,), (plane,))


def _convolved(c: Context, value: Value, weights: Value, bias: Value | None, windows: _Windows, groups: int,
               filters: int, *, backward: bool = False) -> Value:
    a, b = c_type(value.dtype), c_type(weights.dtype)
    dtype = accumulator(value.dtype)
    shape = c.known(value)
    name, template, needs = ("deconv", _TRANSPOSED, (_WINDOW,)) if backward else ("conv", _CONV, (_WINDOW, _INSIDE))
    helper = instance(f"{name}_{a.suffix}_{b.suffix}", template, needs, A=a.name, B=b.name, C=c_type(dtype).name)
    result = c.new(dtype, (shape[0], filters, *windows.results))
    channels = shape[1] // groups
    if not backward and windows.pointwise:
        windows, channels = _over_channels(windows, channels), 1
    numbers = windows.numbers(shape[0], groups, channels, filters // groups)
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
