"""Tensors whose pixels are in another order, or some of them, by layers that move them (`gen.ir.layers.move`).

Patches of pixels are unfolded and folded so (MobileViT), windows are cut and put together, and maps are shifted (Swin):
all channels alike. Pixels that become channels of one are moved by a layer for each (Swin's merged patches). What takes
rows and columns at a fixed distance is `gen.onnx.edges`.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import numpy as np

from gen.ir.tensor import Part
from gen.onnx.builder import GraphBuilder
from gen.onnx.channels import chosen
from gen.onnx.model import NodeError
from gen.onnx.quant_scales import same
from gen.onnx.values import Real

__all__ = ["MAX_PIXELS", "permuted", "selected"]

#: Pixels of a layer, for the time that it takes to find boxes of them, and layers of a tensor.
MAX_PIXELS, _MAX_LAYERS = 1 << 18, 64


def permuted(graph: GraphBuilder, value: Real, *, made: bool = False) -> Real | None:
    """``value`` (1, C, ...), each of whose channels has pixels of one of its tensor, as a tensor where it lies as it
    is. Its last axis is that of the columns. None for any other; if ``made``, for one that there is not yet.
    """
    source = graph.tensors[value.quantised.tensor]
    channels, cols, pixels = value.order.shape[1], value.order.shape[-1], prod(source.shape[1:])
    size = value.order.size // channels // cols, cols
    if (value.order.ndim < 3 or value.order.shape[0] != 1 or source.signs or source.value is not None
            or max(pixels, prod(size)) > MAX_PIXELS):
        return None
    channel, pixel = np.divmod(value.order.reshape(channels, -1), pixels)
    groups = list(_groups(channel, pixel))
    if (channel != channel[:, :1]).any():
        return None
    _, pattern = np.unique(pixel, axis=0, return_inverse=True) if len(groups) > 2 else (None, np.zeros(channels))
    if len(groups) > pattern.max() + 2:
        return _sorted(graph, value, np.lexsort((channel[:, 0], pattern)), made=made)
    if len(groups) > _MAX_LAYERS:
        return None
    key = (source.name,), size, value.order.tobytes() if len(groups) > 1 else pixel[0].tobytes()
    if len(groups) == 1 and channels < source.shape[0]:
        return None         # channels of a tensor are a tensor by themselves
    if made and key not in graph.permuted:
        return None
    if key not in graph.permuted:
        graph.permuted[key] = _moved(graph, value, groups, pixel, size)
    order = np.arange(value.order.size).reshape(value.order.shape)
    return replace(value, quantised=replace(value.quantised, tensor=graph.permuted[key], order=order))


def _sorted(graph: GraphBuilder, value: Real, places: np.ndarray, *, made: bool) -> Real | None:
    """`permuted` with the channels of the same pixels beside each other, at ``places``, which are then picked in order:
    as PixelUnshuffle has its channels.
    """
    beside = replace(value, quantised=replace(value.quantised, order=value.order[:, places]))
    found = permuted(graph, beside, made=made)
    if found is None:
        return None
    order = found.order[:, np.argsort(places)]
    try:
        return chosen(graph, replace(found, quantised=replace(found.quantised, order=order)))
    except NodeError:       # too many for a layer
        return None


def _groups(channel: np.ndarray, pixel: np.ndarray) -> Iterator[tuple[int, int]]:
    """First channel, and the one after the last, of neighbours that have the same pixels of neighbours."""
    apart = (np.diff(channel[:, 0]) != 1) | (np.diff(pixel, axis=0) != 0).any(axis=1)
    ends = [0, *(np.flatnonzero(apart) + 1).tolist(), len(channel)]
    yield from zip(ends, ends[1:], strict=False)


def _moved(graph: GraphBuilder, value: Real, groups: list[tuple[int, int]], pixel: np.ndarray,
           size: tuple[int, int]) -> str:
    """The tensor that a layer for each group makes."""
    source = graph.tensors[value.quantised.tensor]
    if len(groups) == 1:
        return graph.add_move([source.name], pixel[0], size, same(source, source.shape[0]))
    whole = graph.add_like(source.name, f"{source.name}/stacked", (len(pixel), *size))
    for first, end in groups:
        channels = value.order.reshape(len(pixel), -1)[first:end, :1] // prod(source.shape[1:])
        order = channels * prod(source.shape[1:]) + np.arange(prod(source.shape[1:]))
        part = chosen(graph, replace(value, quantised=replace(
            value.quantised, order=order.reshape(1, end - first, *source.shape[1:]))))
        graph.add_move([part.quantised.tensor], pixel[first], size, same(source, end - first), part=Part(whole, first))
    return whole


def selected(graph: GraphBuilder, value: Real) -> Real | None:
    """``value``, which has the same pixels of all channels of its tensor, as a tensor of these pixels in the order in
    which ``value`` has them, in one row. None for any other.
    """
    channels, *size = graph.tensors[value.quantised.tensor].shape
    channel = value.order.ravel() // prod(size)
    count = value.order.size // channels
    if (np.bincount(channel, minlength=channels) != count).any():
        return None
    place = np.argsort(channel, kind="stable")
    lying = value.order.ravel()[place].reshape(1, channels, count)
    if (np.diff(lying[0] % prod(size), axis=0) != 0).any():
        return None
    found = permuted(graph, replace(value, quantised=replace(value.quantised, order=lying)))
    if found is None:
        return None
    order = np.empty(value.order.size, np.int64)
    order[place] = np.arange(value.order.size)
    return replace(found, quantised=replace(found.quantised, order=order.reshape(value.order.shape)))
