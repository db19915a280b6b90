"""Means and maxima over axes: of all pixels of a channel, and of all channels of a pixel."""

import numpy as np

from gen.onnx.arrangement import result_order
from gen.onnx.constants import axes
from gen.onnx.context import Context
from gen.onnx.handlers.pool import over_pixels
from gen.onnx.model import NodeError
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Registry, at
from gen.onnx.values import Pending, Real, Value
from gen.onnx.weights import Kernel, convolved
from gen.onnx.windows import Windows

__all__ = ["HANDLERS"]

HANDLERS = Registry()


@HANDLERS.handles("GlobalAveragePool", conditions="on the pool unit")
def global_average(context: Context, inputs: Inputs) -> Value:
    over = range(2, context.activation(inputs[0]).order.ndim)
    return over_pixels(context, inputs[0], over, keep=True, mean=True)


@HANDLERS.handles("ReduceMean", conditions=(
    "over all spatial axes on the pool unit, over the channels as a 1x1 convolution; no others, and it names them"))
def reduce_mean(context: Context, inputs: Inputs) -> Value:
    over, keep = _named(context, inputs)
    if over == [1]:
        return _over_channels(context, inputs[0], keep=keep)
    return over_pixels(context, inputs[0], over, keep=keep, mean=True)


@HANDLERS.handles("ReduceMax", conditions="over all spatial axes, which it names, on the pool unit")
def reduce_max(context: Context, inputs: Inputs) -> Value:
    over, keep = _named(context, inputs)
    return over_pixels(context, inputs[0], over, keep=keep, mean=False)


def _named(context: Context, inputs: Inputs) -> tuple[list[int], bool]:
    """The axes of a node, and whether its result has them."""
    if not isinstance(inputs[0], Real):
        raise refusal(inputs[0], "its input")
    rank = inputs[0].order.ndim
    over = axes(context.node, at(inputs, 1))
    if not over:
        raise NodeError("must name its axes, which are all spatial ones")
    if not all(-rank <= axis < rank for axis in over):
        raise NodeError(f"has no axes {list(over)} in an input of {rank}")
    return sorted(axis % rank for axis in over), bool(context.node.attributes.get("keepdims", 1))


def _over_channels(context: Context, value: Value | None, *, keep: bool) -> Pending:
    """The mean of all channels of each pixel."""
    source, (channels, height, width) = context.feature_map(value)
    kernel = Kernel(np.ones((1, channels, 1, 1), np.int16), np.full(1, 1 / channels), np.zeros(1))
    order = result_order((1, height, width), source.order.ndim)
    return convolved(context.node.name, source, kernel, Windows((1, 1), (1, 1), (0, 0, 0, 0), (height, width)),
                     order if keep else order[:, 0], source.zero_point)
