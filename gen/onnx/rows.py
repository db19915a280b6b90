"""Rows: the channels of pixels, as Softmax and normalisations take them."""

from dataclasses import replace
from math import prod

import numpy as np

from cores.arch.isa import Opcode, largest_field
from cores.arch.rows import MAX_CHANNELS, SUM_BITS
from gen.onnx.arrangement import HEAD_BLOCK
from gen.onnx.channels import channels_of
from gen.onnx.context import Context
from gen.onnx.model import NodeError
from gen.onnx.permuted import permuted
from gen.onnx.pooling import copy
from gen.onnx.quantise import settled
from gen.onnx.transposed import transposed
from gen.onnx.values import PendingRows, Quantisation, Real, channels_first
from sim.rows import EXPONENTIAL_PLACES, exponentials, moments

__all__ = ["normalised", "softmax_rows"]

#: Channels of a normalisation: of more than `MAX_CHANNELS` the values are `_narrowed`.
_MOST_CHANNELS = largest_field(Opcode.ROWS_SET, "channels")
#: A scale of a normalisation, of the largest one.
_SMALLEST = 2.0**-16


def _rows(context: Context, value: Real, axis: int, most: int = MAX_CHANNELS) -> tuple[Real, int] | None:
    """A tensor whose pixels' channels are the rows of ``axis``, ``most`` of them, and the heads that it has of them;
    None where they lie in another way.
    """
    if value.order.shape[axis] > most:
        return None
    if value.order.ndim >= 3 and axis == value.order.ndim - 1:
        context.graph.place_channels_last(value)
    real = replace(value, quantised=context.graph.tensor(value.quantised, value.scale, value.zero_point))
    if heads := _heads(context, real, axis):
        return real, heads
    for made in (_lying, transposed):
        if made is _lying and not (axis == real.order.ndim - 1 >= 2):
            continue
        one = made(context, real)
        if one is not None and (heads := _heads(context, one, axis)):
            return one, heads
    return _apart(context, real, axis)


def _apart(context: Context, real: Real, axis: int) -> tuple[Real, int] | None:
    """`_rows` of channels that are neighbours, which a 1x1 convolution puts where rows of several heads begin, or of a
    part of a tensor; None where they are none.
    """
    source = context.graph.tensors[real.quantised.tensor]
    pixels, length = prod(source.shape[1:]), real.order.shape[axis]
    rows = np.moveaxis(real.order, axis, -1)
    channel, pixel = np.divmod(rows.reshape(-1, length), pixels)
    if source.signs or (pixel != pixel[:, :1]).any() or (channel != channel[:, :1] + np.arange(length)).any():
        return None
    firsts, head = np.unique(channel[:, 0], return_inverse=True)
    span = length if len(firsts) == 1 else -(-length // HEAD_BLOCK) * HEAD_BLOCK
    channels = np.full((len(firsts), span), -1)
    channels[:, :length] = firsts[:, None] + np.arange(length)
    try:
        tensor = channels_of(context.graph, real, tuple(channels.ravel().tolist()))
    except NodeError:       # too many for a layer
        return None
    order = ((head.reshape(-1, 1) * span + np.arange(length)) * pixels + pixel).reshape(rows.shape)
    made = replace(real.quantised, tensor=tensor, order=np.moveaxis(order, -1, axis))
    return replace(real, quantised=made), len(firsts)


def _heads(context: Context, real: Real, axis: int) -> int:
    """How many heads a tensor has the rows of ``axis`` of, 0 where those are not the channels of its pixels."""
    channels, height, width = context.graph.tensors[real.quantised.tensor].shape
    channel, pixel = np.divmod(np.moveaxis(real.order, axis, -1).reshape(-1, real.order.shape[axis]), height * width)
    length = channel.shape[1]
    firsts = np.unique(channel[:, 0])
    heads = len(firsts)
    span = channels // heads
    lies = ((pixel == pixel[:, :1]).all() and (channel == channel[:, :1] + np.arange(length)).all()
            and np.array_equal(firsts, np.arange(heads) * span) and length <= span
            and (heads == 1 or channels % heads == span % HEAD_BLOCK == 0))
    return heads if lies else 0


def softmax_rows(context: Context, value: Real, axis: int) -> PendingRows | None:
    """Softmax of ``value`` along an axis as a layer; None where no machine has it."""
    found = _rows(context, value, axis)
    if found is None:
        return None
    real, heads = found
    rows = exponentials(real.order.shape[axis], real.scale)
    return _pending(context, real, rows=rows, heads=heads, scale=2.0**-EXPONENTIAL_PLACES)


def normalised(context: Context, value: Real, epsilon: float, gamma: np.ndarray, beta: np.ndarray, *,
               centred: bool) -> PendingRows | None:
    """``value`` normalised along its last axis, of each head by itself, times ``gamma``, plus ``beta``, (C,) each; None
    where no machine has it. Scales next to nothing beside the largest one are made that large.
    """
    found = _rows(context, _in_parts(context, value), value.order.ndim - 1, _MOST_CHANNELS)
    if found is None:
        return None
    real, heads = found
    real = _narrowed(context, real)
    try:
        rows, step = moments(real.order.shape[-1], real.scale, real.zero_point, epsilon, centred=centred)
    except ValueError as error:
        raise NodeError(f"its {error}: it hardly normalises what it reads", code="bad-scale") from None
    sizes = np.maximum(np.abs(gamma), np.abs(gamma).max() * _SMALLEST)
    return _pending(context, real, rows=rows, heads=heads, scale=step * sizes, bias=beta, turned=gamma < 0)


def _narrowed(context: Context, real: Real) -> Real:
    """``real`` in coarser steps where a row of its channels, all at an end of their range, would have a sum that the
    machine has no room for.
    """
    limit = ((1 << SUM_BITS - 1) - 1) // real.order.shape[-1]
    if limit >= 127:
        return real
    factor = limit / 128
    kept = Quantisation(real.scale / factor, round(real.zero_point * factor), False)
    low, high = ((end - kept.zero_point) * kept.scale for end in (-limit, limit))
    layer = replace(copy(context, real), name=f"{context.node.name}/narrowed", nodes=(), low=low, high=high)
    made = settled(context, layer, kept)
    return Real(replace(made, order=real.order), kept.scale, kept.zero_point)


def _in_parts(context: Context, value: Real) -> Real:
    """``value`` with its pixels in order, where its first axes split them: products of each part are to follow, and
    whatever is between them takes any order.
    """
    if value.order.shape[0] == 1 or value.order.ndim < 3:
        return value
    context.graph.place_channels_last(value)
    real = replace(value, quantised=context.graph.tensor(value.quantised, value.scale, value.zero_point))
    return real if (np.diff(real.order[..., 0].ravel()) == 1).all() else _lying(context, real) or real


def _lying(context: Context, real: Real) -> Real | None:
    """A value whose last axis is that of the channels as a tensor that has its pixels in order; None where none has."""
    lying = permuted(context.graph, replace(real, quantised=replace(
        real.quantised, order=channels_first(real.order))))
    if lying is None:
        return None
    order = np.moveaxis(lying.order, 1, -1).reshape(real.order.shape)
    return replace(lying, quantised=replace(lying.quantised, order=order))


def _pending(context: Context, real: Real, *, heads: int, scale: np.ndarray | float, bias: np.ndarray | float = 0.0,
             turned: np.ndarray | bool = False, **arguments: object) -> PendingRows:
    """``scale``, ``bias``, ``turned``: one for all channels, or those of each head."""
    tensor, name = context.graph.tensors[real.quantised.tensor], context.node.name
    # Of channels between heads no scale is larger than what the others have room for.
    spread = [np.full(tensor.shape[0], number) for number in (np.max(scale), 0.0, False)]
    for numbers, given in zip(spread, (scale, bias, turned), strict=True):
        numbers.reshape(heads, -1)[:, :len(given) if isinstance(given, np.ndarray) else None] = given
    return PendingRows(name=name, nodes=(name,), order=real.order, moved_by=real.moved_by, shape=tensor.shape,
                       arguments={"input": tensor.name, "heads": heads, **arguments}, scale=spread[0], bias=spread[1],
                       turned=spread[2])
