"""Tensors whose pixels are in another order: products with a matrix of zeros and ones, exact in every byte.

Patches of pixels are unfolded and folded so (MobileViT): the pixels of each patch come together, all channels alike.
What takes whole rows and columns of them has layers that cost less (`gen.onnx.edges`).
"""

from dataclasses import replace
from math import prod

import numpy as np

from gen.onnx.builder import GraphBuilder
from gen.onnx.exact_products import can_move, picked
from gen.onnx.machine import Units
from gen.onnx.values import Real

__all__ = ["permuted"]


def permuted(graph: GraphBuilder, units: Units, value: Real, dims: tuple[int, int, int]) -> Real | None:
    """``value``, whose pixels lie in another order in all channels alike, as a tensor of ``dims`` where it lies as it
    is. None for any other; asks for the unit.
    """
    source = graph.tensors[value.quantised.tensor]
    pixels, wanted = prod(source.shape[1:]), prod(dims[1:])
    if dims[0] != source.shape[0]:
        return None
    channel, pixel = np.divmod(value.order.reshape(dims[0], wanted), pixels)
    if not ((channel == np.arange(dims[0])[:, None]).all() and (pixel == pixel[0]).all()):
        return None
    if not can_move(units, source, pixels * wanted):
        return None
    key = source.name, dims, pixel[0].tobytes()
    order = np.arange(prod(dims)).reshape(1, *dims)
    if key not in graph.permuted:
        matrix = (np.arange(pixels)[:, None] == pixel[0]).astype(np.int8).reshape(pixels, *dims[1:])
        graph.permuted[key] = picked(graph, source, matrix, by_channels=True, name=f"{source.name}/permuted")
    lies = replace(value.quantised, tensor=graph.permuted[key], order=order.reshape(value.order.shape))
    return replace(value, quantised=lies)
