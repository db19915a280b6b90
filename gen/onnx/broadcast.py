"""Two tensors of which one may have a single number for all pixels of a channel, or for all channels of a pixel."""

from dataclasses import replace
from math import prod

import numpy as np

from gen.onnx.channels import channels_of, chosen, repeated
from gen.onnx.context import Context
from gen.onnx.joined import is_in_groups, joined
from gen.onnx.model import NodeError
from gen.onnx.permuted import permuted
from gen.onnx.transposed import order_transposed, transposed
from gen.onnx.values import Pending, PendingTable, Real, Value, is_plain, is_whole

__all__ = ["in_order_of", "operand", "paired", "unlike"]


def paired(context: Context, a: Real, b: Real) -> tuple[Real, Real]:
    """Operands of an operator that computes element by element; the second one may be the vector of such a pair.

    A vector needs a machine with products. A tensor of one channel beside one of several is repeated for each of them.
    Raises NodeError for operands that do not meet value by value.
    """
    tensors = context.graph.tensors
    if not np.array_equal(a.order, b.order):    # perhaps channels are to be pixels, or alone are in different orders
        a, b = ((joined(context.graph, value) if is_in_groups(context.graph, value) else None)
                or chosen(context.graph, value) for value in (a, b))
    if _is_map(context, a, b):
        b = repeated(context.graph, b, tensors[a.quantised.tensor].shape[0])
    elif _is_map(context, b, a):
        a = repeated(context.graph, a, tensors[b.quantised.tensor].shape[0])
    shapes = [tensors[value.quantised.tensor].shape for value in (a, b)]
    if shapes[0] == shapes[1] and np.array_equal(a.order, b.order):
        return a, b
    for whole, vector in ((a, b), (b, a)):
        if _repeats(context, whole, vector):
            if not context.units.have("product"):
                raise NodeError(f"operands of shapes {a.order.shape} and {b.order.shape}: one is a number for each "
                                "channel that the model computes; --features product puts that on the accelerator",
                                code="needs-unit", unit="product")
            return whole, vector
        if (turned := _turned_vector(context, whole, vector)) is not None and context.units.have("product"):
            return whole, turned
    if (other := _turned_like(context, b, a.order, shapes[0])) is not None:
        return a, other
    for whole, vector in ((a, b), (b, a)):
        if (spread := _spread_vector(context, whole, vector)) is not None and context.units.have("product"):
            return whole, spread
    for made in (True, False):
        if (other := in_order_of(context, b, a.order, shapes[0], made=made)) is not None:
            return a, other
        if (other := in_order_of(context, a, b.order, shapes[1], made=made)) is not None:
            return other, b
    raise unlike(a, b)


def in_order_of(context: Context, value: Real, order: np.ndarray, shape: tuple[int, int, int], *,
                made: bool = False) -> Real | None:
    """``value`` in a tensor of ``shape`` in an arrangement that leaves all channels alike; None where none does.

    ``made``: one that there is already.
    """
    place = np.argsort(order.ravel())
    if not is_whole(order, prod(shape)) or value.order.size != order.size:
        return None
    lying = replace(value, quantised=replace(value.quantised, order=value.order.ravel()[place].reshape(1, *shape)))
    found = permuted(context.graph, lying, made=made) or (None if made else joined(context.graph, lying))
    return None if found is None else replace(found, quantised=replace(found.quantised, order=order))


def _turned_like(context: Context, value: Real, order: np.ndarray, shape: tuple[int, int, int]) -> Real | None:
    """``value`` in a tensor of ``shape`` in an arrangement that its transpose has; None where that has another."""
    source = context.graph.tensors[value.quantised.tensor].shape
    if (shape[0], prod(shape[1:])) != (prod(source[1:]), source[0]) or not np.array_equal(
            order_transposed(value.order, source), order):
        return None
    return transposed(context, value, shape[1:])


def operand(context: Context, value: Value | None) -> Real:
    """One of `paired`: a tensor, or a vector whose numbers may be repeated for each pixel already."""
    if isinstance(value, Real):
        real = replace(value, quantised=context.graph.tensor(value.quantised, value.scale, value.zero_point))
        channels, *pixels = context.graph.tensors[real.quantised.tensor].shape
        if pixels == [1, 1] and real.order.size > channels:
            return real
    return context.activation(value, "an operand")


def unlike(a: Real | Pending | PendingTable, b: Real | Pending | PendingTable) -> NodeError:
    """Why two operands do not meet value by value."""
    if a.order.shape == b.order.shape:
        return NodeError(f"its operands of shape {a.order.shape} lie in different arrangements in memory, as "
                         f"{a.moved_by or b.moved_by or 'one of them'} rearranged one of them; rearrange both, or the "
                         "result", code="rearranged")
    return NodeError(f"operands of shapes {a.order.shape} and {b.order.shape}; both must have one shape, or one of "
                     "them a number for each channel, or for each pixel", code="operand-shapes")


def _repeats(context: Context, whole: Real, vector: Real) -> bool:
    """Whether ``vector`` has one number for all pixels of each channel of ``whole``."""
    channels, *pixels = context.graph.tensors[whole.quantised.tensor].shape
    if context.graph.tensors[vector.quantised.tensor].shape != (channels, 1, 1):
        return False
    try:
        spread = np.broadcast_to(vector.order, whole.order.shape)
    except ValueError:
        return False
    return np.array_equal(spread, whole.order // prod(pixels))


def _turned_vector(context: Context, whole: Real, vector: Real) -> Real | None:
    """A vector whose numbers are pixels, as a convolution over channels makes them (ECA-Net), with channels in their
    place; None for any other.
    """
    channels, *pixels = context.graph.tensors[whole.quantised.tensor].shape
    source = context.graph.tensors[vector.quantised.tensor].shape
    if source[0] != 1 or channels == 1 or prod(source) != channels or vector.order.size != channels:
        return None
    try:
        spread = np.broadcast_to(vector.order, whole.order.shape)
    except ValueError:
        return None
    turned = transposed(context, vector, (1, 1)) if np.array_equal(spread, whole.order // prod(pixels)) else None
    return None if turned is None else replace(turned, quantised=replace(turned.quantised, order=vector.order))


def _spread_vector(context: Context, whole: Real, vector: Real) -> Real | None:
    """A vector that has a number for some channels of ``whole``, the same for those of each head, as one of all of its
    channels; None for any other. A mask of keys is one.
    """
    tensors = context.graph.tensors
    count, *pixels = tensors[whole.quantised.tensor].shape
    source = tensors[vector.quantised.tensor].shape
    if vector.order.size != prod(source) or 1 not in (source[0], prod(source[1:])) or whole.order.ndim < 4:
        return None
    channel = whole.order // prod(pixels)
    try:
        numbers = np.broadcast_to(vector.order, channel.shape)
    except ValueError:
        return None
    channels = np.full(count, -1)
    channels[channel.ravel()] = numbers.ravel()
    if (channels[channel] != numbers).any():
        return None
    real = vector if prod(source[1:]) == 1 else transposed(context, vector, (1, 1))
    if real is None:
        return None
    try:
        tensor = channels_of(context.graph, real, tuple(channels.tolist()))
    except NodeError:       # too many for a layer
        return None
    order = channel
    for axis in range(order.ndim):
        if (order == order.take([0], axis)).all():
            order = order.take([0], axis)
    return replace(real, quantised=replace(real.quantised, tensor=tensor, order=order))


def _is_map(context: Context, whole: Real, other: Real) -> bool:
    """Whether ``other`` has one number for all channels of each pixel of ``whole``, both arranged as they lie."""
    channels, *pixels = context.graph.tensors[whole.quantised.tensor].shape
    return (channels > 1 and context.graph.tensors[other.quantised.tensor].shape == (1, *pixels)
            and is_plain(whole.order) and is_plain(other.order)
            and other.order.shape == (1, 1, *whole.order.shape[2:]))
