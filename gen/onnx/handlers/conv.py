"""Convolutions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from gen.onnx.arrangement import result_order
from gen.onnx.channels import viewed
from gen.onnx.context import Context
from gen.onnx.edges import pad_integer, stored
from gen.onnx.model import Node, NodeError
from gen.onnx.permuted import permuted
from gen.onnx.registry import Inputs, Registry, at
from gen.onnx.transposed import as_pixels
from gen.onnx.values import Padded, Real, Value, channels_shape
from gen.onnx.weights import MAX_WEIGHTS, Kernel, bias_of, convolved, weights_of
from gen.onnx.windows import MAX_KERNEL, MAX_PADS, MAX_STRIDE, Windows, dilated, resolve

__all__ = ["HANDLERS", "convolution", "ungrouped"]

HANDLERS = Registry()

#: Of an input, for padding of that many times what a layer has room for at most.
_MOST_COPIES = 4
#: Of an input, for the pieces of a long kernel, and for its padding.
_MOST_PIECES = 16


def ungrouped(weights: np.ndarray, groups: int) -> np.ndarray:
    """Weights of a grouped convolution as those of an ordinary one, with zeros."""
    oc, ic, *kernel = weights.shape
    if weights.size * groups > MAX_WEIGHTS:
        raise NodeError(f"its {groups} groups take {weights.size * groups:,} weights as a full convolution, at most "
                        f"{MAX_WEIGHTS:,} are supported", code="too-large", limit=MAX_WEIGHTS)
    result = np.zeros((oc, ic * groups, *kernel), weights.dtype)
    for group in range(groups):
        rows = slice(group * (oc // groups), (group + 1) * (oc // groups))
        result[rows, group * ic:(group + 1) * ic] = weights[rows]
    return result


def _padded(value: Padded, node: Node, kernel: Sequence[int]) -> tuple[Windows, int] | None:
    """Windows over a padded value with that padding as their own, and what it is; None where there are two kinds."""
    _, *size = channels_shape(value.shape) or value.shape
    windows, number = resolve(node.attributes, size, kernel), pad_integer(value)
    if any(windows.pads) and number != value.real.zero_point:
        return None
    top, left, bottom, right = (a + b for a, b in zip(value.pads, windows.pads, strict=True))
    return replace(windows, pads=(top, left, bottom, right)), number


def _within_limits(context: Context, source: Real, windows: Windows, pad_value: int) -> tuple[Real, Windows]:
    """An input with the padding that the machine has no room for, and what is left to the windows."""
    left = np.array(windows.pads)
    limits = np.array(MAX_PADS * 2)
    if (left > _MOST_COPIES * limits).any():
        raise NodeError(f"its padding is {windows.pads}; {_MOST_COPIES * MAX_PADS[0]} rows and "
                        f"{_MOST_COPIES * MAX_PADS[1]} columns a side are supported", code="too-large",
                        limit=_MOST_COPIES * MAX_PADS[1])
    while (left > limits).any():
        now = np.clip(left - limits, 0, limits)
        number = (pad_value - source.zero_point) * source.scale
        padded = Padded(context.node.name, source, (int(now[0]), int(now[1]), int(now[2]), int(now[3])), number)
        source, left = context.activation(stored(context.graph, padded)), left - now
    return source, replace(windows, pads=(int(left[0]), int(left[1]), int(left[2]), int(left[3])))


def _dilated(weights: np.ndarray, dilations: Sequence[int]) -> np.ndarray:
    """Weights with zeros between the taps of a kernel."""
    size = dilated(weights.shape[2:], dilations)
    if size != list(weights.shape[2:]) and max(size) > MAX_KERNEL:
        raise NodeError(f"its kernel is {size} with dilation; the machine has at most {MAX_KERNEL}x{MAX_KERNEL}",
                        code="too-large", limit=MAX_KERNEL)
    if prod(size) * prod(weights.shape[:2]) > MAX_WEIGHTS:
        raise NodeError(f"its dilated kernel of {size} takes more than {MAX_WEIGHTS:,} weights",
                        code="too-large", limit=MAX_WEIGHTS)
    result = np.zeros((*weights.shape[:2], *size), weights.dtype)
    result[tuple(slice(None, None, step) for step in (1, 1, *dilations))] = weights
    return result


def _reaching(weights: np.ndarray, dilations: Sequence[int], windows: Windows, size: Sequence[int]
              ) -> tuple[np.ndarray, Windows]:
    """A kernel, with the windows that it then has, without the first and last taps that see nothing but zeros."""
    pads = list(windows.pads)
    kept = [slice(None)] * 2
    for axis, (step, stride, made, length) in enumerate(zip(
            dilations, windows.stride, windows.output, size, strict=True)):
        taps, begin = weights.shape[2 + axis], pads[axis]
        # The elements that a tap sees, from the first output to the last one.
        first = np.arange(taps) * step - begin
        output = np.maximum(0, -(first // stride))      # the first one for which it is not in front of the input
        seen = (output < made) & (first + stride * output < length)
        found = np.flatnonzero(seen) if seen.any() else np.array([0])
        # What is left of the padding is not negative.
        low = min(int(found[0]), begin // step)
        high = max(int(found[-1]), -(-(length - 1 - (made - 1) * stride + begin) // step))
        kept[axis] = slice(low, min(high + 1, taps))
        count = kept[axis].stop - low
        pads[axis] = begin - low * step
        pads[axis + 2] = max(0, (made - 1) * stride + (count - 1) * step + 1 - length - pads[axis])
    if kept == [slice(0, taps) for taps in weights.shape[2:]]:
        return weights, windows
    weights = weights[:, :, kept[0], kept[1]]
    extent = dilated(weights.shape[2:], dilations)
    return weights, replace(windows, kernel=(extent[0], extent[1]), pads=(pads[0], pads[1], pads[2], pads[3]))


def _in_pieces(context: Context, source: Real, weights: np.ndarray, dilations: Sequence[int], windows: Windows,
               pad_value: int, groups: int) -> tuple[Real, np.ndarray, Windows] | None:
    """A convolution whose kernel is longer than the machine's along one axis, as one with shorter ones over several
    copies of the input: each copy begins where its piece of the kernel does, and its channels are beside those of the
    others, in each group. None for others, for copies that no layer makes, and for matrix products, which have as many
    pixels as they like.
    """
    long = [axis for axis in (0, 1) if dilated(weights.shape[2:], dilations)[axis] > MAX_KERNEL]
    channels, *size = context.graph.tensors[source.quantised.tensor].shape
    covers = list(weights.shape[2:]) == size and not any(windows.pads)
    if len(long) != 1 or covers and not groups == channels == len(weights) > 1:
        return None
    axis, step = long[0], dilations[long[0]]
    taps, made, stride = weights.shape[2 + axis], windows.output[axis], windows.stride[axis]
    pieces = -(-taps // ((MAX_KERNEL - 1) // step + 1))
    each = -(-taps // pieces)
    limits, left = np.array(MAX_PADS * 2), np.where(np.arange(4) % 2 == axis, windows.pads, 0)
    if (left > _MOST_PIECES * limits).any() or pieces > _MOST_PIECES or axis == 1 and made > 1 and stride > MAX_STRIDE:
        return None     # `gen.mapping.strides` makes columns channels
    while left.any():
        now = np.minimum(left, limits)
        pads = int(now[0]), int(now[1]), int(now[2]), int(now[3])
        number = (pad_value - source.zero_point) * source.scale
        source, left = context.activation(stored(context.graph, Padded(context.node.name, source, pads, number))), (
            left - now)
    channels, *size = context.graph.tensors[source.quantised.tensor].shape
    whole = source.order.reshape(1, groups, channels // groups, *size)
    # What a copy lacks at its end meets taps of zero.
    begins = np.minimum(np.arange((made - 1) * stride + (each - 1) * step + 1) + np.arange(
        pieces)[:, None] * each * step, whole.shape[3 + axis] - 1)
    copies = np.stack([whole.take(begin, 3 + axis) for begin in begins], 2)
    stacked = replace(source, quantised=replace(source.quantised, order=copies.reshape(1, -1, *copies.shape[-2:])))
    found = permuted(context.graph, stacked)
    if found is None:
        return None
    shape = list(weights.shape)
    shape[2 + axis] = each * pieces
    filled = np.zeros(shape, weights.dtype)
    filled[:, :, :weights.shape[2], :weights.shape[3]] = weights
    cut = np.concatenate(np.split(filled, pieces, 2 + axis), 1)
    kernel = list(windows.kernel)
    kernel[axis] = (each - 1) * step + 1
    kept = [0 if place % 2 == axis else pad for place, pad in enumerate(windows.pads)]
    return found, cut, replace(
        windows, kernel=(kernel[0], kernel[1]), pads=(kept[0], kept[1], kept[2], kept[3]))


@dataclass(frozen=True)
class _Folded:
    """A map of one row, or of one column, in rows as long as it is from a tap of a kernel to the next: so the taps are
    below each other. In memory the pixels stay where they are.

    ``pads``: (top, left, bottom, right) that the map gets first so that rows are full, ``input`` its rows and columns
    then, with ``windows`` over these.
    """

    pads: tuple[int, int, int, int]
    input: tuple[int, int]
    windows: Windows


def _folded(dims: tuple[int, int, int], windows: Windows, dilations: Sequence[int], taps: Sequence[int]
            ) -> _Folded | None:
    """None for other maps and kernels, and where ``dilations`` are 1."""
    axis = 1 if dims[1] == 1 else 0
    step, count, length, made = dilations[axis], taps[axis], dims[1 + axis], windows.output[axis]
    if (dims[2 - axis] != 1 or taps[1 - axis] != 1 or windows.pads[1 - axis] or windows.pads[3 - axis]
            or windows.stride[axis] != 1 or min(step, count) < 2):
        return None
    top, lead = divmod(windows.pads[axis], step)
    tail = -(lead + length) % step
    rows, outputs = (lead + length + tail) // step, -(-made // step)
    if max(lead, tail) > MAX_PADS[axis]:
        return None
    return _Folded((0, lead, 0, tail) if axis else (lead, 0, tail, 0), (rows, step), Windows(
        (count, 1), (1, 1), (top, 0, max(0, outputs + count - 1 - rows - top), 0), (outputs, step)))


def _below(context: Context, source: Real, folded: _Folded) -> Real | None:
    """``source`` as the map of its rows; None for what lies in memory in another way."""
    pads = folded.pads
    if any(pads):
        padded = Padded(context.node.name, source, pads, 0.0)
        source = context.activation(stored(context.graph, padded))
    channels = source.order.shape[1]
    found = viewed(context.graph, source, (channels, *folded.input))
    return found if context.graph.tensors[found.quantised.tensor].shape == (channels, *folded.input) else None


@HANDLERS.handles("Conv", conditions=(
    "a layer of its own; one or two spatial axes, constant weights. Horizontal strides above 7 where they are products "
    "of shorter ones, as those of patch embeddings are. Groups other than depthwise without the blocks of zeros "
    "between them. Dilation along an axis, where the other is 1, without zeros, after a copy where it does not divide "
    "the length; any other as a kernel of 63x63 at most, of whose zeros those columns alone take time that are no "
    "multiple of the pixels of a word apart. A longer kernel along one axis in pieces, up to "
    f"{_MOST_PIECES}, each over a copy of the input. Taps that see nothing but padding are left out. A copy first "
    f"for more padding than the machine has, {MAX_PADS[0]} rows and {MAX_PADS[1]} columns a side, up to "
    f"{_MOST_COPIES} times that"))
def convolution(context: Context, inputs: Inputs) -> Value:
    node = context.node
    padded = inputs[0] if isinstance(inputs[0], Padded) else None
    source, dims = context.feature_map(padded.real if padded else as_pixels(context, inputs[0]))
    weights, scale = weights_of(inputs[1], 0)
    rank = source.order.ndim
    if weights.ndim != rank:
        raise NodeError(f"weights of shape {weights.shape} on an input of shape {source.order.shape}",
                        code="operand-shapes")
    merged = _padded(padded, node, weights.shape[2:]) if padded else None
    if padded and merged is None:
        source, dims = context.feature_map(stored(context.graph, padded))
    windows, pad_value = merged or (resolve(node.attributes, dims[1:], weights.shape[2:]), None)
    dilations = list(node.attributes.get("dilations") or [1] * (rank - 2))
    if rank == 3:
        weights, dilations = weights[:, :, None, :], [1, *dilations]
    if pad_value in (None, source.zero_point):
        weights, windows = _reaching(weights, dilations, windows, dims[1:])
    order = result_order((weights.shape[0], *windows.output), rank)
    folded = _folded(dims, windows, dilations, weights.shape[2:]) if pad_value in (None, source.zero_point) else None
    below = _below(context, source, folded) if folded else None
    if folded and below:
        source, windows, weights = below, folded.windows, weights.reshape(*weights.shape[:2], -1, 1)
        whole = np.arange(weights.shape[0] * prod(windows.output)).reshape(weights.shape[0], -1)
        order = whole[:, :order[0, 0].size].reshape(order.shape)
    else:
        number = source.zero_point if pad_value is None else pad_value
        groups = int(node.attributes.get("group", 1))
        cut = (_in_pieces(context, source, weights, dilations, windows, number, groups)
               if groups > 0 and weights.shape[1] * groups == dims[0] else None)
        if cut is not None:
            source, weights, windows = cut
            dims = context.graph.tensors[source.quantised.tensor].shape
        weights = _dilated(weights, dilations)
        source, windows = _within_limits(context, source, windows, number)
    groups = int(node.attributes.get("group", 1))
    depthwise = groups == dims[0] == weights.shape[0] > 1
    if groups < 1 or weights.shape[0] % groups:
        raise NodeError(f"{weights.shape[0]} output channels cannot be divided into {groups} groups",
                        code="operand-shapes")
    if not depthwise and groups > 1:
        weights = ungrouped(weights, groups)
    if weights.shape[1] != (1 if depthwise else dims[0]):
        raise NodeError(f"weights of {weights.shape[1]} channels on an input of {dims[0]}", code="operand-shapes")
    if merged is None and context.graph.tensors[source.quantised.tensor].zero_point != source.zero_point:
        pad_value = source.zero_point   # zero is elsewhere for this reader
    bias = bias_of(at(inputs, 2), weights.shape[0], broadcast=False)
    kernel = Kernel(weights, scale, bias, depthwise, 1 if depthwise else groups)
    return convolved(node.name, source, kernel, windows, order, pad_value)
