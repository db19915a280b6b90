"""Means and maxima over axes: of all pixels of a channel, and of all channels of a pixel."""

from dataclasses import replace
from math import prod

import numpy as np

from gen.onnx.arrangement import result_order
from gen.onnx.constants import axes
from gen.onnx.context import Context
from gen.onnx.handlers.pool import covers_pixels, covers_some_pixels, over_pixels
from gen.onnx.model import NodeError
from gen.onnx.pooling import pooled
from gen.onnx.quantise import settled
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Registry, at
from gen.onnx.values import Pending, PendingAdd, Quantisation, Real, Value
from gen.onnx.weights import Kernel, convolved
from gen.onnx.windows import Windows

__all__ = ["HANDLERS"]

HANDLERS = Registry()


@HANDLERS.handles("GlobalAveragePool", conditions="on the pool unit")
def global_average(context: Context, inputs: Inputs) -> Value:
    over = range(2, context.activation(inputs[0]).order.ndim)
    return over_pixels(context, inputs[0], over, keep=True, mean=True)


@HANDLERS.handles("ReduceMean", "ReduceSum", conditions=(
    "over one or all spatial axes, or some tokens, on the pool unit, over the channels as a 1x1 convolution; no "
    "others, and it names them"))
def reduce_mean(context: Context, inputs: Inputs) -> Value:
    over, keep = _named(context, inputs)
    found = _mean(context, inputs[0], over, keep=keep)
    if context.node.op == "ReduceMean":
        return found
    assert isinstance(inputs[0], Real) and isinstance(found, Pending)
    return replace(found, scale=found.scale * prod(inputs[0].order.shape[axis] for axis in over))


def _mean(context: Context, value: Value | None, over: list[int], *, keep: bool) -> Value:
    if covers_pixels(context, value, over):
        return over_pixels(context, value, over, keep=keep, mean=True)
    if over == [1] and not covers_some_pixels(context, value, over):
        return _over_channels(context, value, keep=keep)
    if over in ([2], [3]) and isinstance(value, Real) and value.order.ndim == len("NCHW"):
        return _over_rows(context, value, over[0], keep=keep)
    return over_pixels(context, value, over, keep=keep, mean=True)


def _over_rows(context: Context, value: Value | None, axis: int, *, keep: bool) -> Pending:
    """The means of all rows, or of all columns."""
    source, (channels, height, width) = context.feature_map(value)
    kernel, size = ((height, 1), (1, width)) if axis == len("NC") else ((1, width), (height, 1))
    order = result_order((channels, *size), source.order.ndim)
    return pooled(context, source, Windows(kernel, (1, 1), (0, 0, 0, 0), size), order if keep else order.squeeze(axis),
                  divisor=prod(kernel))


@HANDLERS.handles("ReduceMax", conditions=(
    "over all spatial axes on the pool unit, over C channels as 1x1 convolutions that add, one for each halving of C; "
    "no others, and it names them"))
def reduce_max(context: Context, inputs: Inputs) -> Value:
    over, keep = _named(context, inputs)
    if over == [1] and not covers_some_pixels(context, inputs[0], over):
        return _largest_channel(context, inputs[0], keep=keep)
    return over_pixels(context, inputs[0], over, keep=keep, mean=False)


def _named(context: Context, inputs: Inputs) -> tuple[list[int], bool]:
    """The axes of a node, and whether its result has them."""
    if not isinstance(inputs[0], Real):
        raise refusal(inputs[0], "its input")
    rank = inputs[0].order.ndim
    over = axes(context.node, at(inputs, 1))
    if not over:
        raise NodeError("must name its axes, which are all spatial ones", code="bad-attribute", attribute="axes")
    if not all(-rank <= axis < rank for axis in over):
        raise NodeError(f"has no axes {list(over)} in an input of {rank}", code="bad-attribute", attribute="axes")
    return sorted(axis % rank for axis in over), bool(context.node.attributes.get("keepdims", 1))


def _over_channels(context: Context, value: Value | None, *, keep: bool) -> Pending:
    """The mean of all channels of each pixel."""
    source, (channels, height, width) = context.feature_map(value)
    kernel = Kernel(np.ones((1, channels, 1, 1), np.int16), np.full(1, 1 / channels), np.zeros(1))
    order = result_order((1, height, width), source.order.ndim)
    return convolved(context.node.name, source, kernel, _whole_pixels(height, width),
                     order if keep else order[:, 0], source.zero_point)


def _largest_channel(context: Context, value: Value | None, *, keep: bool) -> Real:
    """The maximum of all channels of each pixel, exactly: of halves of them, again and again."""
    real, (channels, _, _) = context.feature_map(value)
    while channels > 1:
        channels = -(-channels // 2)
        real = _larger_half(context, real, channels)
    if keep:
        return real
    return replace(real, quantised=replace(real.quantised, order=real.order[:, 0]))


def _larger_half(context: Context, real: Real, count: int) -> Real:
    """Maxima of the first ``count`` channels and the last: what the latter have more, from 0 to 255, and the first."""
    graph = context.graph
    tensor = graph.tensors[real.quantised.tensor]
    channels, height, width = tensor.shape
    first = np.eye(count, channels, dtype=np.int16)
    kernel = Kernel((np.roll(first, channels - count, 1) - first)[:, :, None, None], np.ones(count), np.zeros(count))
    order = np.arange(count * height * width).reshape(1, count, *real.order.shape[2:])
    more = convolved(f"{context.node.name}/{count}", real, kernel, _whole_pixels(height, width), order,
                     real.zero_point)
    excess = Quantisation(real.scale, -128, False)
    name = graph.add_part(tensor.name, 0, count)
    part = replace(real, quantised=replace(real.quantised, tensor=name, order=order))
    total = PendingAdd(
        name=f"{context.node.name}/{count}", nodes=(context.node.name,), order=order, a=part,
        b=Real(settled(context, more.clipped(0.0, np.inf, ""), excess), excess.scale, excess.zero_point))
    return replace(real, quantised=settled(context, total, Quantisation(
        real.scale, real.zero_point + 128 * real.quantised.unsigned, real.quantised.unsigned)))


def _whole_pixels(height: int, width: int) -> Windows:
    """Of a 1x1 convolution."""
    return Windows((1, 1), (1, 1), (0, 0, 0, 0), (height, width))
