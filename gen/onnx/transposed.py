"""Tensors whose channels become pixels, and pixels channels: products with the identity, exact in every byte.

The corner turn takes a tensor as weights of which each pixel's channels are multiplied; where the other operand is the
identity, a constant, what comes out is the tensor, with a channel for each of its pixels.
"""

from dataclasses import replace
from math import prod

import numpy as np

from gen.ir.tensor import Requantize
from gen.onnx.builder import Result
from gen.onnx.context import Context
from gen.onnx.values import Head, PendingProduct, Quantisation, Real
from sim.golden import quantize_multiplier

__all__ = ["order_transposed", "transposed"]

#: Values of an identity, for memory.
_MAX_IDENTITY = 1 << 20


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
    channels, pixels = source.shape[0], prod(source.shape[1:])
    size = size or (1, channels)
    if source.signs or source.value is not None or channels**2 > _MAX_IDENTITY:
        return None
    if not (context.units.have("turn") or context.units.have("gather")):
        return None
    key = source.name, size
    if key not in graph.transposed:
        shape = pixels, *size
        one = graph.add_constant(f"{source.name}/identity", np.eye(channels, dtype=np.int8).reshape(channels, *size),
                                 Quantisation(1.0, 0, False))
        multiplier, shift = quantize_multiplier(np.ones(pixels))
        head = Head(arguments=dict(input=one, matrix=source.name, reduced=channels, rows=pixels, zero_points=(0, 0),
                                   by_channels=False))
        product = PendingProduct(name=f"{source.name}/transposed", nodes=(), order=np.arange(0), heads=(head,),
                                 outputs=pixels, size=size, scale=1.0)
        stage = Requantize(np.zeros(pixels, np.int64), multiplier, shift, 0, -128, 127)
        kept = Quantisation(source.scale, source.zero_point, False)
        product = replace(product, order=np.arange(prod(shape)).reshape(1, *shape))
        graph.transposed[key] = graph.add_product(product, head, stage, shape, result=Result(None, kept),
                                                  part=None).tensor
    order = order_transposed(value.order, source.shape)
    return replace(value, quantised=replace(value.quantised, tensor=graph.transposed[key], order=order))
