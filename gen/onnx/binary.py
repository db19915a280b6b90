"""Binarised layers (docs/binary.md): Sign, the padding behind it, sums that leave the model as they are."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gen.ir.graph import Conv, HostStep, Requantize, Tensor
from gen.onnx.affine import affine, turned_copy
from gen.onnx.branches import finer, pending_sums
from gen.onnx.handlers import Registry, at
from gen.onnx.layers import copy, only_copies, sign_maximum
from gen.onnx.model import Node
from gen.onnx.values import (
    Condition,
    Constant,
    Host,
    Padded,
    Pending,
    PendingPool,
    Quantised,
    QuantisedConstant,
    Real,
    Value,
    layout_steps,
)

if TYPE_CHECKING:
    from gen.onnx.importer import Importer

__all__ = ["HANDLERS", "even_bias", "finer_units", "joined"]

HANDLERS = Registry()

#: Multipliers and shifts of 2, and of 1/2.
_TWO, _HALF = (1 << 16, 15), (1 << 16, 17)
#: Channels of int8 that one sum is spread over at most, and what each of them adds to the range.
_MAX_PARTS, _PART = 8, 255


def _parity(importer: "Importer", value: Pending) -> int | None:
    """Whether all sums of a binary layer are even (0) or odd (1); None where neither or the layer is another."""
    source: Tensor = importer.tensors[value.arguments["input"]]
    if value.layer is not Conv or not source.signs:
        return None
    weights = value.arguments["weights"]
    if value.arguments["depthwise"] or not (np.abs(weights) == 1).all():
        return None
    around = value.arguments.get("pad_value")
    if any(value.arguments["pads"]) and around in (None, 0):
        return None if weights.shape[1] % 2 else 0
    return int(weights[0].size % 2)


def even_bias(importer: "Importer", value: Pending, bias: np.ndarray) -> np.ndarray:
    """Real biases in units of the accumulator -> integers; in a binary layer such that sums with it are even.

    The machine counts equal bits, so its unit is two: a bias has to match.
    """
    parity = _parity(importer, value)
    if parity is None:
        return np.rint(bias)
    return 2 * np.rint((bias - parity) / 2) + parity


def finer_units(importer: "Importer", value: Pending, scale: float) -> Pending:
    """`gen.onnx.branches.finer`, but for binary layers, whose weights stay -1 and +1."""
    return value if _parity(importer, value) is not None else finer(importer, value, scale)


def _reach(importer: "Importer", value: Pending) -> np.ndarray:
    """A bound of each channel's absolute sum, int64 (C,)."""
    low, high = pending_sums(importer, value)
    return np.maximum(np.abs(low), np.abs(high))


def _store_signs(importer: "Importer", node: Node, value: Pending, above: np.ndarray | None = None) -> Real:
    """Emit a layer that writes +1 where its result is 0 or more (more than 0 in the channels ``above``), else -1."""
    _require_both_signs(importer, node, value)
    threshold = value.offset + value.bias / value.scale
    # A threshold that is an integer but for float32's rounding is that integer.
    nearest = np.rint(threshold)
    close = np.abs(threshold - nearest) <= 1e-6 * np.maximum(1, np.abs(threshold))
    bias = np.where(close, nearest if above is None else nearest - above, np.floor(threshold))
    parity = _parity(importer, value)
    if parity is not None:
        # Sums of one parity pass an odd threshold where they pass the even one before it.
        bias -= (bias - parity) % 2
    reach = _reach(importer, value) + 2
    bias = np.where(np.abs(bias) > reach, np.sign(bias) * (reach + (reach + (parity or 0)) % 2), bias)
    multiplier, shift = (np.full(value.shape[0], number) for number in _TWO)
    output = importer.add_layer(node, value, value.order, value.shape, Requantize(
        bias.astype(np.int64), multiplier, shift, 1, -1, 1), signs=True)
    return Real(output, 1.0, 0)


def _require_both_signs(importer: "Importer", node: Node, value: Pending | PendingPool) -> None:
    if not value.low < 0 <= value.high:
        importer.fail(node, f"follows an activation function of {value.name} that leaves only one sign")


def _store_pooled(importer: "Importer", node: Node, value: PendingPool) -> Real:
    """Signs of a maximum: the maximum of signs, which a negative factor turns."""
    _require_both_signs(importer, node, value)
    if not value.factor.all():
        importer.fail(node, f"has a factor of 0 behind {value.name}; remove the channel")
    falling = value.factor < 0
    inner = replace(value.inner, bias=value.inner.bias + value.shift / value.factor)
    pooled = sign_maximum(importer, node, _store_signs(importer, node, inner, falling), value)
    if not falling.any():
        return pooled
    return _store_signs(importer, node, turned_copy(importer, node, pooled, np.where(falling, -1, 1)))


def _signs_of(importer: "Importer", node: Node, value: Pending | PendingPool) -> Real:
    if isinstance(value, PendingPool):
        return _store_pooled(importer, node, value)
    source = importer.tensors[value.arguments["input"]]
    if (source.signs and only_copies(value) and (-value.scale <= value.bias).all() and (value.bias < value.scale).all()
            and value.low < 0 <= value.high):
        # Signs, moved away from zero.
        return Real(Quantised(source.name, value.order, False), 1.0, 0)
    return _store_signs(importer, node, value)


@HANDLERS.handles("GreaterOrEqual", "Greater", "LessOrEqual", "Less")
def compare(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    constants = [isinstance(v, Constant | QuantisedConstant) for v in inputs]
    if sum(constants) != 1:
        importer.fail(node, "compares two activations; only an activation and a constant make a threshold")
    first = constants.index(False)
    number = importer.constant(node, inputs[1 - first], "the threshold").astype(np.float64)
    # value >= number, number >= value; the others are their opposites.
    rising = (node.op in ("GreaterOrEqual", "Less")) == (first == 0)
    slope = np.ones(1) if rising else -np.ones(1)
    result = affine(importer, node, inputs[first], slope, -number * slope, always=True)
    assert isinstance(result, Pending | PendingPool)
    return Condition(result, node.op in ("Greater", "Less"))


@HANDLERS.handles("Where")
def where(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    """1 and -1 by a condition: a sign."""
    condition = inputs[0]
    if not isinstance(condition, Condition):
        importer.fail(node, "its condition must be a comparison of an activation with a constant")
    yes, no = (importer.scalar(node, at(inputs, i), "its operand") for i in (1, 2))
    if condition.inverted:
        yes, no = no, yes
    if (yes, no) == (1, -1):
        return _signs_of(importer, node, condition.value)
    if (yes, no) != (-1, 1):
        importer.fail(node, f"chooses between {yes:g} and {no:g}; only 1 and -1 make a sign")
    turned = _signs_of(importer, node, condition.value)
    return _store_signs(importer, node, turned_copy(importer, node, turned, -1))


@HANDLERS.handles("Sign")
def sign(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    value = inputs[0]
    if isinstance(value, Pending | PendingPool):
        return _signs_of(importer, node, value)
    real = importer.activation(node, value)
    if importer.tensors[real.quantised.tensor].signs:
        return replace(real, scale=1.0)
    return _store_signs(importer, node, replace(copy(importer, node, real), nodes=()))


@HANDLERS.handles("Pad")
def pad(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    """Padding in front of a convolution, with a number that the tensor can hold."""
    if node.attributes.get("mode", "constant") != "constant":
        importer.fail(node, "pads with other than a constant")
    real = importer.activation(node, inputs[0])
    rank = real.order.ndim
    listed = node.attributes.get("pads")
    pads = np.zeros((2, rank), np.int64)
    named = np.array(listed) if listed is not None else importer.constant(node, at(inputs, 1), "the padding")
    axes = importer.axes(node, at(inputs, 3)) or range(rank)
    pads[:, [axis % rank for axis in axes]] = named.astype(np.int64).reshape(2, -1)
    if rank not in (3, 4) or pads[:, :2].any() or pads.min() < 0:
        importer.fail(node, "pads other axes than the spatial ones, or cuts")
    number = importer.scalar(node, at(inputs, 2), "the value", float(node.attributes.get("value", 0.0)))
    raw = number / real.scale + real.zero_point
    if raw != round(raw) or not -128 <= raw <= 127:
        importer.fail(node, f"pads with {number:g}, which the quantised tensor cannot hold")
    begin, end = ([0] * (4 - rank) + row[2:].tolist() for row in pads)
    return Padded(real, (begin[0], begin[1], end[0], end[1]), round(raw))


def joined(importer: "Importer", value: Pending) -> Host | None:
    """The exact result of a binary layer that leaves the model unquantised; None if it is none or too large.

    The layer writes each sum several times, clipped to one int8 range after the other; the processor adds them up.
    """
    parity, (low, high) = _parity(importer, value), (value.low, value.high)
    if np.isfinite([low, high]).any() or not importer.tensors[value.arguments["input"]].signs:
        return None
    channels, unit = value.shape[0], 1 if parity is None else 2
    reach = int(_reach(importer, value).max())
    least, most = (end // unit for end in (-reach + (parity or 0), reach + (parity or 0)))
    parts = max(1, -(-(most - least) // _PART))
    if parts > _MAX_PARTS or value.layer is not Conv:
        return None
    origins = least + 128 + _PART * np.arange(parts)
    bias = np.repeat((parity or 0) - unit * origins, channels)
    multiplier, shift = (np.full(parts * channels, number) for number in (_HALF if unit == 2 else (1 << 16, 16)))
    arguments = {**value.arguments, "weights": np.tile(value.arguments["weights"], (parts, 1, 1, 1))}
    shape = (parts * channels, *value.shape[1:])
    order = np.arange(int(np.prod(shape))).reshape(1, *shape)
    output = importer.add_layer(None, replace(value, arguments=arguments), order, shape, Requantize(
        bias, multiplier, shift, 0, -128, 127), signs=False)
    constant = int(origins[0]) + 128 * (parts - 1)
    # In units of the accumulator: unit * sum + offset, with what makes its sums even.
    step = HostStep("join", {
        "parts": parts, "constant": constant, "scale": (value.scale * unit).astype(np.float32),
        "bias": ((value.offset - (parity or 0)) * value.scale + value.bias).astype(np.float32)})
    steps = (step, *layout_steps(value.shape, value.order))
    return Host(output.tensor, steps, np.arange(value.order.size).reshape(value.order.shape))
