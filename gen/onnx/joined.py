"""Pixels of several groups of a tensor's channels side by side, by a layer that moves them (`gen.ir.layers.move`).

A ConvTranspose with a stride makes the phases of its pixels as groups of channels, and so does what is in front of a
DepthToSpace; the steps of a recurrent layer are groups of channels, of one pixel each.
"""

from dataclasses import replace
from math import prod

import numpy as np

from gen.onnx.builder import GraphBuilder
from gen.onnx.channels import channels_of
from gen.onnx.permuted import MAX_PIXELS, permuted
from gen.onnx.quant_scales import same
from gen.onnx.values import Real

__all__ = ["is_in_groups", "joined", "moved_pixels"]

#: Groups of a layer: parts of a tensor, and copies of channels that are no neighbours, or so few that each is copied.
_MAX_PARTS, _MAX_COPIES, _FEW = 256, 16, 8


def moved_pixels(graph: GraphBuilder, value: Real) -> Real | None:
    """As `permuted`, or else as `joined`."""
    return permuted(graph, value) or joined(graph, value)


def joined(graph: GraphBuilder, value: Real) -> Real | None:
    """``value`` (1, C, ...), of whose pixels each is one of its tensor, in C of its channels, as a tensor where it lies
    as it is. Its last axis is that of the columns. None for any other.
    """
    source = graph.tensors[value.quantised.tensor]
    _, height, width = source.shape
    if source.signs or source.value is not None or value.order.ndim < 3 or value.order.shape[0] != 1:
        return None
    count = value.order.shape[1]
    channel, pixel = np.divmod(value.order.reshape(count, -1), height * width)
    cols = value.order.shape[-1]
    size = channel.shape[1] // cols, cols
    if max(prod(size), height * width) > MAX_PIXELS or (pixel != pixel[0]).any():
        return None
    _, first, group = np.unique(channel[0], return_index=True, return_inverse=True)
    groups = channel[:, first]
    most = _MAX_PARTS if count >= _FEW and (np.diff(groups, axis=0) == 1).all() else _MAX_COPIES
    if len(first) > most or (channel != groups[:, group]).any():
        return None
    names = [channels_of(graph, value, tuple(channels)) for channels in groups.T.tolist()]
    places = group * height * width + pixel[0]
    key = tuple(names), size, places.tobytes()
    if key not in graph.permuted:
        graph.permuted[key] = graph.add_move(names, places, size, same(source, count))
    order = np.arange(value.order.size).reshape(value.order.shape)
    return replace(value, quantised=replace(value.quantised, tensor=graph.permuted[key], order=order))


def is_in_groups(graph: GraphBuilder, value: Real) -> bool:
    """Whether each pixel of ``value``, (1, C, H, W), has C neighbouring channels of its tensor, which has more."""
    count, height, width = graph.tensors[value.quantised.tensor].shape
    if value.order.ndim != 4 or not 1 < value.order.shape[1] < count:
        return False
    return bool((np.diff(value.order, axis=1) == height * width).all())
