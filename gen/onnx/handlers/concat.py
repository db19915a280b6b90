"""Tensors, or parts of one, side by side."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from gen.ir.graph import MAX_VALUES
from gen.onnx.arrangement import possible, rearranged
from gen.onnx.channels import viewed
from gen.onnx.constants import constant
from gen.onnx.context import Context
from gen.onnx.joined import joined, moved_pixels
from gen.onnx.maps import constant_like
from gen.onnx.model import NodeError
from gen.onnx.pooling import pooled
from gen.onnx.quantise import quantize
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Registry
from gen.onnx.values import (
    Constant,
    PendingAdd,
    PendingConcat,
    PendingPixels,
    Quantisation,
    Quantised,
    QuantisedConstant,
    Real,
    Value,
    is_plain,
    is_whole,
)
from gen.onnx.windows import Windows

__all__ = ["HANDLERS", "concat"]

HANDLERS = Registry()


@HANDLERS.handles("Concat", conditions=(
    "of the channels of several tensors no work: layers write into their part of the whole. A copy first of what has "
    "another scale than the QuantizeLinear after it, is a model input, or is part of another tensor already. Of maps "
    "of as many channels along rows or columns, or of tokens, those of heads and of inputs (keys and values of earlier "
    "tokens) among them, a layer that moves pixels. "
    "[Parts](architecture.md#parts) says what becomes of parts within a block of channels. Of a tensor's tokens with "
    "constants, as a class token, a copy that adds these"))
def concat(context: Context, inputs: Inputs) -> Value:
    real = [value for value in inputs if isinstance(value, Real)]
    constants = [value for value in inputs if isinstance(value, Constant | QuantisedConstant)]
    if constants and len(real) == 1 == len(inputs) - len(constants):
        return _with_tokens(context, inputs, real[0])
    parts: list[Real | Quantised] = []
    for value in inputs:
        if not isinstance(value, Real | Quantised):
            raise refusal(value, "one of its inputs")
        parts.append(value)
    if sum(value.order.size for value in parts) > MAX_VALUES:
        raise NodeError(f"makes more than {MAX_VALUES:,} values", code="too-large", limit=MAX_VALUES)
    axis = int(context.node.attributes.get("axis", 1))
    if len({_without_order(value) for value in parts}) == 1:
        order = possible(np.concatenate([value.order for value in parts], axis))
        return rearranged(context.node, parts[0], lambda _: order)
    reals = [value for value in parts if isinstance(value, Real)]
    if len(reals) == len(parts):
        return _join(context, reals, axis)
    integers = [value for value in parts if isinstance(value, Quantised)]
    if len(integers) < len(parts) or len({value.unsigned for value in integers}) > 1:
        raise NodeError("joins tensors of different types; quantise all of them as int8, or all as uint8",
                        code="value-type")
    # Integers stay what they are, whatever they stand for.
    joined = _join(context, [Real(value, 1.0, 0) for value in integers], axis)
    unsigned = integers[0].unsigned
    return quantize(context, joined, Quantisation(1.0, 128 if unsigned else 0, unsigned))


def _join(context: Context, values: list[Real], axis: int) -> PendingConcat | PendingPixels:
    """Tensors one after the other in memory; if they are not so in the model, as an arrangement of that."""
    _place_inputs(context, values, axis)
    parts = [context.activation(value, "one of its inputs") for value in values]
    if axis == 0 or parts[0].order.shape[0] > 1:
        parts = [_steps_as_pixels(context, part) for part in parts]
    shapes = [context.graph.tensors[part.quantised.tensor].shape for part in parts]
    if len({shape[1:] for shape in shapes}) > 1 and (found := _pixels(context, parts, shapes, axis)) is not None:
        return found
    if (found := _pixels_of_heads(context, parts, shapes, axis)) is not None:
        return found
    if len({shape[1:] for shape in shapes}) > 1 and {part.order.ndim for part in parts} == {4}:
        parts = [moved_pixels(context.graph, part) or part if not is_plain(part.order) else part
                 for part in parts]
        shapes = [context.graph.tensors[part.quantised.tensor].shape for part in parts]
    if len({shape[1:] for shape in shapes}) > 1 and (found := _pixels(context, parts, shapes, axis)) is not None:
        return found
    if len({shape[1:] for shape in shapes}) > 1 and len({part.order.shape[2:] for part in parts}) == 1:
        if any(part.order.ndim < 4 for part in parts):
            raise NodeError(f"joins values of maps of different sizes, {', '.join(map(str, shapes))}, which lie apart "
                            "in memory; only the processor puts them together, as at the end of a detector",
                            code="rearranged")
        raise NodeError("joins a tensor whose rows and columns lie apart, as a rearrangement leaves them, with "
                        "another; only the processor puts them together", code="rearranged")
    if len({shape[1:] for shape in shapes}) > 1:
        raise NodeError(f"joins tensors of shapes {', '.join(map(str, shapes))}; the machine joins channels",
                        code="operand-shapes")
    starts = np.cumsum([0, *(part.order.size for part in parts[:-1])])
    order = np.concatenate([part.order + start for part, start in zip(parts, starts, strict=True)], axis)
    return PendingConcat(name=context.node.name, nodes=(context.node.name,), order=possible(order),
                         parts=tuple(parts))


def _steps_as_pixels(context: Context, part: Real) -> Real:
    """The steps of one direction of a recurrent layer, of (steps, 1, 1, channels) or as these were moved, as pixels:
    they are groups of channels of one pixel where they are made. Any other as it is.
    """
    count, channels = part.order.shape[-1], context.graph.tensors[part.quantised.tensor].shape[0]
    if part.order.ndim != 4 or not 1 < count < channels or part.order.size != channels:
        return part
    tokens = part.order.reshape(-1, count).T[None]
    found = joined(context.graph, replace(part, quantised=replace(part.quantised, order=tokens)))
    if found is None:
        return part
    order = np.arange(channels).reshape(count, -1).T.reshape(part.order.shape)
    return replace(found, quantised=replace(found.quantised, order=order))


def _place_inputs(context: Context, values: Sequence[Real], axis: int) -> None:
    """Inputs that nothing has laid out yet lie as the tensors whose pixels they are joined with, as keys and values of
    earlier tokens do: all axes but ``axis`` are channels, in the same order.
    """
    for value in values:
        source = context.graph.tensors.get(value.quantised.tensor)
        if source is None:
            continue
        channel = value.order // prod(source.shape[1:])
        first = channel.take([0], axis)
        if (channel != first).any():
            continue
        first = first - first.min()     # of channels of a tensor, perhaps some of its
        if not is_whole(first, first.size):
            continue
        for other in values:
            if (count := other.order.shape[axis]) and other.order.ndim == value.order.ndim:
                pixels = np.arange(count).reshape(-1, *(1,) * (other.order.ndim - 1 - axis % other.order.ndim))
                context.graph.place_like(other, first * count + pixels, (first.size, 1, count))
        return


def _pixels(context: Context, parts: Sequence[Real], shapes: Sequence[tuple[int, int, int]], axis: int
            ) -> PendingPixels | None:
    """Maps or tokens one after the other, all of as many channels; None where these are not along one axis."""
    if len({tuple(np.delete(part.order.shape, axis)) for part in parts}) > 1:
        return None
    counts = [prod(shape[1:]) for shape in shapes]
    total, starts = sum(counts), np.cumsum([0, *counts[:-1]])
    found = [np.divmod(part.order, count) for part, count in zip(parts, counts, strict=True)]
    channel = np.concatenate([channels for channels, _ in found], axis)
    pixel = np.concatenate([pixels + start for (_, pixels), start in zip(found, starts, strict=True)], axis)
    for place, size in enumerate(channel.shape):
        if {shape[0] for shape in shapes} == {size}:
            channels = np.moveaxis(channel, place, 0).reshape(size, -1)
            pixels = np.moveaxis(pixel, place, 0).reshape(size, -1)
            if (channels == np.arange(size)[:, None]).all() and (pixels == pixels[0]).all():
                order = np.moveaxis(np.arange(size * total).reshape(size, *np.moveaxis(channel, place, 0).shape[1:]), 0,
                                    place)
                return PendingPixels(name=context.node.name, nodes=(context.node.name,), order=possible(order),
                                     parts=tuple(parts), places=pixels[0], size=(1, total))
    return None


def _pixels_of_heads(context: Context, parts: Sequence[Real], shapes: Sequence[tuple[int, int, int]], axis: int
                     ) -> PendingPixels | None:
    """`_pixels` of heads, (1, heads, tokens, channels), whose channels are several axes, or not the second one."""
    if len({tuple(np.delete(part.order.shape, axis)) for part in parts}) > 1 or parts[0].order.ndim < 4:
        return None
    counts = [prod(shape[1:]) for shape in shapes]
    total, starts = sum(counts), np.cumsum([0, *counts[:-1]])
    channel = np.concatenate([part.order // count for part, count in zip(parts, counts, strict=True)], axis)
    varies = [bool(np.diff(channel, axis=place).any()) for place in range(channel.ndim)]
    pixel = parts[0].order % counts[0]
    if not np.diff(pixel, axis=axis).any() and pixel.any():
        return None     # beside each other in a new axis, as the directions of a recurrent layer are: channels
    if len({shape[0] for shape in shapes}) > 1 or varies[axis] or not any(varies[2:]):
        return None
    order = np.concatenate([part.order // count * total + part.order % count + start
                            for part, count, start in zip(parts, counts, starts, strict=True)], axis)
    return PendingPixels(name=context.node.name, nodes=(context.node.name,), order=possible(order),
                         parts=tuple(parts), places=np.arange(total), size=(1, total))


def _with_tokens(context: Context, inputs: Inputs, value: Real) -> PendingAdd:
    """A tensor between constants, along the axis of its pixels: padding there, and constants added to that."""
    axis = int(context.node.attributes.get("axis", 1)) % value.order.ndim
    real = context.activation(value, "one of its inputs")
    channels, *size = context.graph.tensors[real.quantised.tensor].shape
    channel, pixel = np.divmod(real.order, prod(size))
    if real.order.shape[axis] != prod(size) or (np.moveaxis(pixel, axis, -1) != np.arange(prod(size))).any():
        raise NodeError("joins a tensor and constants along an axis that is not that of all of its pixels; the machine "
                        "joins tokens so", code="unsupported-form")
    place = next(i for i, one in enumerate(inputs) if isinstance(one, Real))
    plain = np.arange(real.order.size).reshape(1, channels, *size)
    row = viewed(context.graph, replace(real, quantised=replace(real.quantised, order=plain)),
                 (channels, 1, prod(size)))
    numbers = [one if isinstance(one, Constant | QuantisedConstant) else None for one in inputs]
    before, after = (sum(one.array.shape[axis] for one in part if one is not None)
                     for part in (numbers[:place], numbers[place + 1:]))
    count = before + prod(size) + after
    order = np.moveaxis(np.moveaxis(channel, axis, -1)[..., :1] * count + np.arange(count), -1, axis)
    windows = Windows((1, 1), (1, 1), (0, before, 0, after), (1, count))
    joined = pooled(context, row, windows, possible(order), divisor=1)
    return PendingAdd(name=context.node.name, nodes=(context.node.name,), order=order, a=joined, apart=True,
                      b=constant_like(context, _between(numbers, real.order.shape, axis), joined))


def _between(numbers: Sequence[Constant | QuantisedConstant | None], shape: tuple[int, ...],
             axis: int) -> Constant | QuantisedConstant:
    """Constants side by side, with zeros of ``shape`` in the place of what is none."""
    found = [one for one in numbers if one is not None]
    if len(found) == 1 and isinstance(found[0], QuantisedConstant) and found[0].scale.size == 1:
        zeros = np.zeros(shape, np.int16)
        array = np.concatenate([found[0].integers if one is found[0] else zeros for one in numbers], axis)
        return replace(found[0], array=array, zero_point=np.zeros_like(found[0].zero_point))
    return Constant(np.concatenate([np.zeros(shape) if one is None else constant(one, "an input") for one in numbers],
                                   axis))


def _without_order(value: Real | Quantised) -> tuple[object, ...]:
    if isinstance(value, Real):
        return value.quantised.tensor, value.scale, value.zero_point
    return value.tensor, value.unsigned
