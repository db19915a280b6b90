"""Tensors whose pixels are in another order: products with a matrix of zeros and ones, exact in every byte.

Patches of pixels are unfolded and folded so (MobileViT): the pixels of each patch come together, all channels alike.
What takes whole rows and columns of them has layers that cost less (`gen.onnx.edges`).
"""

from dataclasses import replace
from math import prod

import numpy as np

from gen.ir.tensor import Requantize, Tensor
from gen.onnx.builder import GraphBuilder, Result
from gen.onnx.machine import Units
from gen.onnx.values import Head, PendingProduct, Quantisation, Real
from sim.golden import quantize_multiplier

__all__ = ["permuted"]

#: Values of such a matrix, for memory.
_MAX_MATRIX = 1 << 20


def permuted(graph: GraphBuilder, units: Units, value: Real, dims: tuple[int, int, int]) -> Real | None:
    """``value``, whose pixels lie in another order in all channels alike, as a tensor of ``dims`` where it lies as it
    is. None for any other; asks for the unit.
    """
    source = graph.tensors[value.quantised.tensor]
    pixels, wanted = prod(source.shape[1:]), prod(dims[1:])
    if dims[0] != source.shape[0] or source.signs or source.value is not None or pixels * wanted > _MAX_MATRIX:
        return None
    channel, pixel = np.divmod(value.order.reshape(dims[0], wanted), pixels)
    if not ((channel == np.arange(dims[0])[:, None]).all() and (pixel == pixel[0]).all()):
        return None
    if not (units.have("turn") or units.have("gather")):
        return None
    key = source.name, dims, pixel[0].tobytes()
    order = np.arange(prod(dims)).reshape(1, *dims)
    if key not in graph.permuted:
        graph.permuted[key] = _layer(graph, source, pixel[0], dims)
    lies = replace(value.quantised, tensor=graph.permuted[key], order=order.reshape(value.order.shape))
    return replace(value, quantised=lies)


def _layer(graph: GraphBuilder, source: Tensor, taken: np.ndarray, dims: tuple[int, int, int]) -> str:
    """The tensor of a product that takes these pixels."""
    pixels = prod(source.shape[1:])
    matrix = (np.arange(pixels)[:, None] == taken).astype(np.int8).reshape(pixels, *dims[1:])
    name = graph.add_constant(f"{source.name}/pixels", matrix, Quantisation(1.0, 0, False))
    head = Head(arguments=dict(input=name, matrix=source.name, reduced=pixels, rows=dims[0], zero_points=(0, 0),
                               by_channels=True))
    product = PendingProduct(name=f"{source.name}/permuted", nodes=(),
                             order=np.arange(prod(dims)).reshape(1, *dims), heads=(head,), outputs=dims[0],
                             size=dims[1:], scale=1.0)
    multiplier, shift = quantize_multiplier(np.ones(dims[0]))
    stage = Requantize(np.zeros(dims[0], np.int64), multiplier, shift, 0, -128, 127)
    kept = Quantisation(source.scale, source.zero_point, False)
    return graph.add_product(product, head, stage, dims, result=Result(None, kept), part=None).tensor
