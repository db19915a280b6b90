"""Some channels of a tensor as a tensor of their own."""

from dataclasses import replace
from math import prod

import numpy as np

from gen.onnx.builder import GraphBuilder, Result
from gen.onnx.model import NodeError
from gen.onnx.quant_scales import same
from gen.onnx.values import Pending, Quantisation, Real, channels_with_gaps, is_plain, is_whole
from gen.onnx.weights import MAX_WEIGHTS, Kernel, convolved
from gen.onnx.windows import Windows

__all__ = ["channels_of", "chosen", "repeated", "viewed", "widened", "with_gaps"]


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
    """The tensor of some channels of the one that ``value`` is in, -1 for one of zeros. Raises NodeError for too many
    that are apart.
    """
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


def widened(graph: GraphBuilder, value: Real, counts: tuple[int, int], integer: int, name: str) -> Real:
    """A tensor arranged as it lies, with ``counts`` channels before and after its own, all of them int8 ``integer``.

    A 1x1 convolution called ``name`` copies the channels; the others have no weights, and the integer as their bias.
    Raises NodeError for too many, and for signs.
    """
    source = graph.tensors[value.quantised.tensor]
    if source.signs:
        raise NodeError("puts channels around signs, of which a copy makes none", at=name, code="not-a-sign")
    count, (before, after) = source.shape[0], counts
    total = before + count + after
    _has_room(total, count)
    channels = np.full(total, -1)
    channels[before:before + count] = np.arange(count)
    layer = _copied(name, value, channels, source.shape)
    kept = same(source, total)
    bias = np.where(channels < 0, integer - kept.zero_point, kept.bias)
    result = Result(None, Quantisation(source.scale, source.zero_point, False))
    written = graph.add_layer(layer, replace(kept, bias=bias), result=result)
    return replace(value, quantised=replace(written, order=layer.order.reshape(1, total, *value.order.shape[2:])))


def _picked(graph: GraphBuilder, value: Real, channels: tuple[int, ...]) -> str:
    """The tensor of a layer that copies channels of one."""
    source = graph.tensors[value.quantised.tensor]
    count, height, width = source.shape
    _has_room(len(channels), count)
    layer = _copied(f"{source.name}/channels", value, np.array(channels), source.shape)
    unsigned = source.onnx_unsigned
    kept = Quantisation(source.scale, source.zero_point + 128 * unsigned, unsigned)
    return graph.add_layer(replace(layer, nodes=()), same(source, len(channels)), result=Result(None, kept)).tensor


def _has_room(channels: int, count: int) -> None:
    """Raises NodeError where a layer has too many weights that makes so many ``channels`` of ``count``."""
    if channels * count > MAX_WEIGHTS:
        raise NodeError(f"makes {channels:,} channels of {count:,}, in another order or with others, too many for a "
                        "layer; make them outputs of the model", code="too-large", limit=MAX_WEIGHTS // count)


def _copied(name: str, value: Real, channels: np.ndarray, shape: tuple[int, int, int]) -> Pending:
    """A 1x1 convolution that makes ``channels``, int (C,), of those of a tensor of ``shape``; -1 has no weights."""
    weights = (channels[:, None] == np.arange(shape[0])).astype(np.int16)[:, :, None, None]
    ones = np.ones(len(channels))
    return convolved(name, value, Kernel(weights, ones, 0 * ones),
                     Windows((1, 1), (1, 1), (0, 0, 0, 0), (shape[1], shape[2])),
                     np.arange(len(channels) * prod(shape[1:])).reshape(1, -1, *shape[1:]))
