"""Tensors whose pixels are in another order, or some of them, by a layer that moves them (`gen.ir.layers.move`).

Patches of pixels are unfolded and folded so (MobileViT), windows are cut and put together, and maps are shifted (Swin):
all channels alike. What takes rows and columns of them at a fixed distance is `gen.onnx.edges`.
"""

from dataclasses import replace
from math import prod

import numpy as np

from gen.onnx.builder import GraphBuilder
from gen.onnx.quant_scales import same
from gen.onnx.values import Real

__all__ = ["permuted"]

#: Pixels of a layer, for the time that it takes to find boxes of them.
_MAX_PIXELS = 1 << 18


def permuted(graph: GraphBuilder, value: Real, size: tuple[int, int] | None = None, *,
             made: bool = False) -> Real | None:
    """``value``, which has the same pixels of all channels of its tensor, as a tensor with these pixels in the order
    in which ``value`` has them, in rows and columns of ``size``, or one row. None for any other; if ``made``, for one
    that there is not yet.
    """
    source = graph.tensors[value.quantised.tensor]
    channels, *pixels = source.shape
    channel, pixel = np.divmod(value.order.ravel(), prod(pixels))
    count, rest = divmod(value.order.size, channels)
    if (source.signs or source.value is not None or rest or max(count, prod(pixels)) > _MAX_PIXELS
            or size is not None and prod(size) != count or (np.bincount(channel, minlength=channels) != count).any()):
        return None
    place = np.argsort(channel, kind="stable")
    places = pixel[place].reshape(channels, count)
    if (places != places[0]).any():
        return None
    order = np.empty(value.order.size, np.int64)
    order[place] = np.arange(value.order.size)
    shape = size or (1, count)
    key = source.name, shape, places[0].tobytes()
    if made and key not in graph.permuted:
        return None
    if key not in graph.permuted:
        graph.permuted[key] = graph.add_move(source.name, places[0], shape, same(source, channels))
    lies = replace(value.quantised, tensor=graph.permuted[key], order=order.reshape(value.order.shape))
    return replace(value, quantised=lies)
