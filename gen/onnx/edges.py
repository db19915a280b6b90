"""Padding, cropping and repeating: in the layer that reads the result where it can, else by a layer of its own."""

from dataclasses import replace
from math import prod

import numpy as np

from gen.ir.epilogue.upsample import MAX_REPEATS, Upsample
from gen.ir.graph import Conv, Pool
from gen.onnx.builder import GraphBuilder, Result
from gen.onnx.model import NodeError
from gen.onnx.quant_scales import same
from gen.onnx.refusals import rearranged_in_front_of
from gen.onnx.values import (
    Padded,
    Pending,
    Quantisation,
    Quantised,
    QuantisedPadded,
    Real,
    channels_shape,
    is_plain,
    is_whole,
)
from gen.onnx.windows import MAX_KERNEL, MAX_PADS

__all__ = ["TAKE_PADDING", "cropped", "enlarged", "integers_of_padded", "pad_integer", "padding", "stored"]

#: Operators whose handlers take a padded value as it is: it is `stored` for all others.
TAKE_PADDING = ("Conv", "QLinearConv", "QuantizeLinear", "DequantizeLinear")

#: Steps of a tensor by which a number may miss one: float32's rounding, and no more.
_CLOSE = 1e-4


def pad_integer(value: Padded) -> int:
    """The int8 value of the padding. Raises NodeError for a number that is none of the tensor's."""
    raw = value.number / value.real.scale + value.real.zero_point
    nearest = np.clip(np.rint(raw), -128, 127)
    if not abs(raw - nearest) <= _CLOSE:
        raise NodeError(f"pads with {value.number:g}, which the quantised tensor cannot hold; pad with a multiple of "
                        "its scale, or quantise after the Pad as in front of it", at=value.name,
                        code="unsupported-form")
    return int(nearest)


def integers_of_padded(value: Padded) -> Padded:
    """``value`` with the number that its own quantisation makes of the padding's."""
    real = value.real
    with np.errstate(over="ignore"):    # infinite is as good
        raw = np.clip(np.rint(np.float32(value.number) / np.float32(real.scale)) + real.zero_point, -128, 127)
    return replace(value, number=(int(raw) - real.zero_point) * real.scale)


def padding(graph: GraphBuilder, value: Padded) -> Pending:
    """The layer that copies a tensor into its padding. Raises NodeError where none can."""
    source = graph.tensor(value.real.quantised, value.real.scale, value.real.zero_point)
    tensor = graph.tensors[source.tensor]
    if tensor.signs:
        raise NodeError("pads signs, which only a Conv can follow", at=value.name, code="not-a-sign")
    if channels_shape(source.order.shape) != tensor.shape or not is_plain(source.order):
        raise rearranged_in_front_of(value.name, tensor.name, source.moved_by)
    if any(size > largest for size, largest in zip(value.pads, 2 * MAX_PADS, strict=True)):
        raise NodeError(f"pads with {value.pads} rows and columns; a layer has at most {MAX_PADS[0]} rows and "
                        f"{MAX_PADS[1]} columns of padding at each side", at=value.name,
                        code="too-large", limit=MAX_PADS)
    (channels, height, width), (top, left, bottom, right) = tensor.shape, value.pads
    shape = channels, top + height + bottom, left + width + right
    return Pending(
        name=value.name, nodes=(value.name,), order=np.arange(prod(shape)).reshape(value.shape), shape=shape,
        layer=Pool, arguments=dict(input=source.tensor, maximum=False, kernel=(1, 1), stride=(1, 1), pads=value.pads,
                                   pad_value=pad_integer(value)),
        scale=np.full(channels, value.real.scale), offset=np.full(channels, -value.real.zero_point),
        bias=np.zeros(channels))


def stored(graph: GraphBuilder, value: Padded | QuantisedPadded) -> Real | Quantised:
    """A padded value as a tensor of its own, in the integers that it has."""
    padded = value if isinstance(value, Padded) else value.padded
    layer = padding(graph, padded)
    tensor = graph.tensors[layer.arguments["input"]]
    quantisation = Quantisation(tensor.scale, tensor.zero_point, False)
    if isinstance(value, Padded):
        written = graph.add_layer(layer, same(tensor, layer.shape[0]), result=Result(None, quantisation))
        return replace(padded.real, quantised=written)
    unsigned = padded.real.quantised.unsigned
    quantisation = replace(quantisation, zero_point=tensor.zero_point + 128 * unsigned, unsigned=unsigned)
    return graph.add_layer(layer, same(tensor, layer.shape[0]), result=Result(value.node, quantisation))


def cropped(graph: GraphBuilder, value: Real) -> Real | None:
    """Rows and columns of a tensor, every first, second, ... of them, as a tensor of its own; None for other parts, and
    for those that are too far from the first row or column for a kernel.

    A depthwise convolution picks them: its kernel has one weight of 1, at the first row and column.
    """
    tensor = graph.tensors[value.quantised.tensor]
    channel, *places = np.unravel_index(value.order, tensor.shape)
    starts, steps, sizes, indices = [], [], [], []
    for place, size in zip(places, tensor.shape[1:], strict=True):
        taken, index = np.unique(place, return_inverse=True)
        # One alone is in the first window, and no other fits.
        step = int(taken[1] - taken[0]) if taken.size > 1 else size - int(taken[0])
        if not np.array_equal(taken, taken[0] + step * np.arange(taken.size)):
            return None
        starts.append(int(taken[0]))
        steps.append(step)
        sizes.append(taken.size)
        indices.append(index.reshape(value.order.shape))
    shape = tensor.shape[0], sizes[0], sizes[1]
    order = np.ravel_multi_index((channel, *indices), shape)
    if tensor.signs or not is_whole(order, prod(shape)):
        return None
    # The smallest kernel that reaches the first place and leaves as many windows as there are places.
    kernel = [max(start + 1, size - count * step + 1)
              for start, size, count, step in zip(starts, tensor.shape[1:], sizes, steps, strict=True)]
    if max(kernel) > MAX_KERNEL:
        return None
    weights = np.zeros((shape[0], 1, *kernel), np.int16)
    weights[:, :, starts[0], starts[1]] = 1
    layer = Pending(
        name=value.moved_by, nodes=(value.moved_by,), order=order, shape=shape, layer=Conv,
        arguments=dict(input=tensor.name, weights=weights, depthwise=True, stride=tuple(steps), pads=(0, 0, 0, 0),
                       pad_value=None),
        scale=np.full(shape[0], value.scale), offset=np.full(shape[0], -value.zero_point), bias=np.zeros(shape[0]))
    written = graph.add_layer(layer, same(tensor, shape[0]),
                              result=Result(None, Quantisation(tensor.scale, tensor.zero_point, False)))
    return replace(value, quantised=written)


def enlarged(graph: GraphBuilder, value: Real) -> Real | None:
    """Rows and columns of a tensor, each of them repeated as often, as a tensor of its own; None for anything else.

    A copy repeats them, as of a Resize.
    """
    tensor = graph.tensors[value.quantised.tensor]
    count, height, width = tensor.shape
    plain = np.arange(prod(tensor.shape)).reshape(tensor.shape)
    for last in (False, True):      # where the channels are
        order = np.moveaxis(value.order, -1, 1) if last else value.order
        shape = channels_shape(order.shape)
        if shape is None or shape[0] != count or shape[1] % height or shape[2] % width or tensor.signs:
            continue
        factors = shape[1] // height, shape[2] // width
        if np.array_equal(order.ravel(), plain.repeat(factors[0], 1).repeat(factors[1], 2).ravel()):
            break
    else:
        return None
    # More columns than a store repeats take two layers.
    first = max(n for n in range(1, MAX_REPEATS + 1) if factors[1] % n == 0)
    real = _enlarged_by(graph, value, (1, factors[1] // first)) if factors[1] > first else value
    real = _enlarged_by(graph, real, (factors[0], first))
    made = np.arange(order.size).reshape(order.shape)
    return replace(real, quantised=replace(real.quantised, order=np.moveaxis(made, 1, -1) if last else made))


def _enlarged_by(graph: GraphBuilder, value: Real, factors: tuple[int, int]) -> Real:
    """All of a tensor, each row and column repeated so often."""
    tensor = graph.tensors[value.quantised.tensor]
    count, height, width = tensor.shape
    shape = count, height * factors[0], width * factors[1]
    layer = Pending(
        name=value.moved_by, nodes=(value.moved_by,), order=np.arange(prod(shape)).reshape(1, *shape), shape=shape,
        layer=Pool, arguments=dict(input=tensor.name, maximum=False, kernel=(1, 1), stride=(1, 1), pads=(0, 0, 0, 0),
                                   pad_value=value.zero_point, epilogue=(Upsample(factors),)),
        scale=np.full(count, value.scale), offset=np.full(count, -value.zero_point), bias=np.zeros(count))
    written = graph.add_layer(layer, same(tensor, count),
                              result=Result(None, Quantisation(tensor.scale, tensor.zero_point, False)))
    return replace(value, quantised=written)
