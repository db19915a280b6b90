"""Some channels of a tensor as a tensor of their own."""

from dataclasses import replace
from math import prod

import numpy as np

from gen.onnx.builder import GraphBuilder, Result
from gen.onnx.model import NodeError
from gen.onnx.quant_scales import same
from gen.onnx.values import Quantisation, Real, channels_with_gaps, is_plain, is_whole
from gen.onnx.weights import MAX_WEIGHTS, Kernel, convolved
from gen.onnx.windows import Windows

__all__ = ["channels_of", "chosen", "repeated", "viewed", "with_gaps"]


def chosen(graph: GraphBuilder, value: Real) -> Real:
    """``value`` as a tensor of the channels that it has, in its order; as it is where it does not consist of channels.

    Neighbours are part of the tensor that they are channels of, others are picked out by a 1x1 convolution. Raises
    NodeError for too many of these.
    """
    source = graph.tensors[value.quantised.tensor]
    count, height, width = source.shape
    number, pixel = np.divmod(value.order, height * width)
    # Where each channel comes first: of several values for a place NumPy keeps the last.
    first = np.full(count, value.order.size)
    first[number.ravel()[::-1]] = np.arange(value.order.size)[::-1]
    channels = tuple(np.argsort(first)[:np.count_nonzero(first < value.order.size)].tolist())
    place = np.zeros(count, np.int64)
    place[list(channels)] = np.arange(len(channels))
    order = place[number] * height * width + pixel
    shape = len(channels), height, width
    if source.signs or not is_whole(order, prod(shape)) or channels == tuple(range(count)):
        return value
    tensor = channels_of(graph, value, channels)
    return replace(value, quantised=replace(value.quantised, tensor=tensor, order=order))


def channels_of(graph: GraphBuilder, value: Real, channels: tuple[int, ...]) -> str:
    """The tensor of some channels of the one that ``value`` is in. Raises NodeError for too many that are apart."""
    source = graph.tensors[value.quantised.tensor]
    if channels == tuple(range(source.shape[0])):
        return source.name
    key = source.name, channels
    if key not in graph.chosen:
        neighbours = channels == tuple(range(channels[0], channels[0] + len(channels)))
        graph.chosen[key] = (graph.add_part(source.name, channels[0], len(channels)) if neighbours
                             else _picked(graph, value, channels))
    return graph.chosen[key]


def with_gaps(graph: GraphBuilder, value: Real) -> Real | None:
    """``value`` as it is where it has channels of a tensor between others, as heads that are padded to blocks: a copy
    of all of them takes less than to pick some. None for anything else.
    """
    real = replace(value, quantised=graph.tensor(value.quantised, value.scale, value.zero_point))
    source = graph.tensors[real.quantised.tensor]
    return real if not source.signs and channels_with_gaps(real.order, source.shape) is not None else None


def viewed(graph: GraphBuilder, value: Real, dims: tuple[int, int, int]) -> Real:
    """``value`` as a tensor of ``dims`` where that is its tensor with the pixels in rows of another length, which are
    neighbours in memory all the same; else as it is.
    """
    source = graph.tensors[value.quantised.tensor]
    channels, *pixels = source.shape
    if source.signs or source.value is not None or not is_plain(value.order) or source.shape == dims or (
            channels, prod(pixels)) != (dims[0], prod(dims[1:])):
        return value
    key = source.name, dims[1:]
    if key not in graph.viewed:
        graph.viewed[key] = graph.add_view(source.name, *dims[1:])
    return replace(value, quantised=replace(value.quantised, tensor=graph.viewed[key]))


def repeated(graph: GraphBuilder, value: Real, count: int) -> Real:
    """A tensor of one channel, arranged as it lies, as one of ``count`` that are all alike, by a 1x1 convolution.

    Raises NodeError for too many.
    """
    channels = (0,) * count
    _, height, width = graph.tensors[value.quantised.tensor].shape
    key = value.quantised.tensor, channels
    if key not in graph.chosen:
        graph.chosen[key] = _picked(graph, value, channels)
    order = np.arange(count * height * width).reshape(1, count, *value.order.shape[2:])
    return replace(value, quantised=replace(value.quantised, tensor=graph.chosen[key], order=order))


def _picked(graph: GraphBuilder, value: Real, channels: tuple[int, ...]) -> str:
    """The tensor of a layer that copies channels of one."""
    source = graph.tensors[value.quantised.tensor]
    count, height, width = source.shape
    if len(channels) * count > MAX_WEIGHTS:
        raise NodeError(f"takes {len(channels):,} channels of {count:,} in another order, too many for a layer; make "
                        "them outputs of the model", code="too-large")
    weights = (np.array(channels)[:, None] == np.arange(count)).astype(np.int16)[:, :, None, None]
    ones = np.ones(len(channels))
    layer = convolved(f"{source.name}/channels", value, Kernel(weights, ones, 0 * ones),
                      Windows((1, 1), (1, 1), (0, 0, 0, 0), (height, width)),
                      np.arange(len(channels) * height * width).reshape(1, -1, height, width))
    unsigned = source.onnx_unsigned
    kept = Quantisation(source.scale, source.zero_point + 128 * unsigned, unsigned)
    return graph.add_layer(replace(layer, nodes=()), same(source, len(channels)), result=Result(None, kept)).tensor
