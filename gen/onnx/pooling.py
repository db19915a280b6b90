"""Layers of the pool unit: the maximum or the sum of windows, and copies, which are sums of one value."""

from dataclasses import replace

import numpy as np

from gen.ir.graph import Pool
from gen.ir.tensor import Requantize
from gen.onnx.builder import Result
from gen.onnx.context import Context
from gen.onnx.values import Pending, PendingPool, Real
from gen.onnx.windows import Windows
from sim.golden import quantize_multiplier

__all__ = ["copy", "pooled", "sign_maximum", "store_maximum"]


def pooled(context: Context, source: Real, windows: Windows, order: np.ndarray, *, divisor: int | None) -> Pending:
    """The sum of each window divided by ``divisor``, or, without one, its maximum."""
    maximum = divisor is None
    channels = context.graph.tensors[source.quantised.tensor].shape[0]
    summands = 1 if maximum else windows.kernel[0] * windows.kernel[1]
    return Pending(
        name=context.node.name, nodes=(context.node.name,), order=order, shape=(channels, *windows.output), layer=Pool,
        arguments=dict(input=source.quantised.tensor, maximum=maximum, kernel=windows.kernel, stride=windows.stride,
                       pads=windows.pads, pad_value=-128 if maximum else source.zero_point),
        scale=np.full(channels, source.scale / (divisor or 1)),
        offset=np.full(channels, -source.zero_point * summands), bias=np.zeros(channels))


def copy(context: Context, source: Real) -> Pending:
    """``source``, to be requantised."""
    _, height, width = context.graph.tensors[source.quantised.tensor].shape
    windows = Windows((1, 1), (1, 1), (0, 0, 0, 0), (height, width))
    return replace(pooled(context, source, windows, source.order, divisor=1), moved_by=source.moved_by)


def store_maximum(context: Context, value: Pending) -> Real:
    """Emit the maximum of signs, which needs no scale."""
    channels = value.shape[0]
    one, shift = quantize_multiplier(np.ones(channels))
    stage = Requantize(np.zeros(channels, np.int64), one, shift, 0, -1, 1)
    return Real(context.graph.add_layer(value, stage, result=Result(context.node, signs=True)), 1.0, 0)


def sign_maximum(context: Context, source: Real, value: PendingPool) -> Real:
    """The maximum of signs in the windows of ``value``."""
    result = pooled(context, source, value.windows, value.order, divisor=None)
    return store_maximum(context, replace(result, name=value.name, nodes=value.nodes))
