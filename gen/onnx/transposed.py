"""Tensors whose channels become pixels, and pixels channels: products with the identity, exact in every byte.

The corner turn takes a tensor as weights, which are multiplied with the channels of each pixel of the other operand. If
that operand is the identity, a constant, the result is the tensor with a channel for each of its pixels.
"""

from dataclasses import replace
from math import prod

import numpy as np

from gen.onnx.context import Context
from gen.onnx.exact_products import can_move, picked
from gen.onnx.values import Real, Value, is_plain

__all__ = ["as_pixels", "order_transposed", "transposed"]


def order_transposed(order: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    """The arrangement of values of a tensor of ``shape`` in its transpose."""
    channel, pixel = np.divmod(order, prod(shape[1:]))
    return np.asarray(pixel * shape[0] + channel)


def transposed(context: Context, value: Real, size: tuple[int, int] | None = None) -> Real | None:
    """``value`` in a tensor with a channel for each pixel of its own, whose pixels are its channels, in rows of
    ``size``, or one row. None for what no machine transposes so; asks for the unit.
    """
    graph = context.graph
    source = graph.tensors[value.quantised.tensor]
    channels = source.shape[0]
    size = size or (1, channels)
    if not can_move(context.units, source, channels**2):
        return None
    key = source.name, size
    if key not in graph.transposed:
        identity = np.eye(channels, dtype=np.int8).reshape(channels, *size)
        graph.transposed[key] = picked(graph, source, identity, by_channels=False, name=f"{source.name}/transposed")
    order = order_transposed(value.order, source.shape)
    return replace(value, quantised=replace(value.quantised, tensor=graph.transposed[key], order=order))


def as_pixels(context: Context, value: Value | None) -> Value | None:
    """A vector (1, 1, C) whose elements are a tensor's channels, as one whose elements are the pixels of a tensor; any
    other value unchanged.
    """
    if not isinstance(value, Real) or value.order.ndim != 3 or value.order.shape[1] != 1 or value.order.size < 2:
        return value
    real = replace(value, quantised=context.graph.tensor(value.quantised, value.scale, value.zero_point))
    source = context.graph.tensors[real.quantised.tensor]
    if source.shape != (real.order.size, 1, 1) or not is_plain(real.order):
        return value
    return transposed(context, real) or value
