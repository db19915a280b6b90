"""Signs, also as comparisons: binarised layers (docs/binary.md)."""

from dataclasses import replace

import numpy as np

from gen.ir.tensor import Requantize
from gen.onnx.builder import Result
from gen.onnx.constants import constant, scalar
from gen.onnx.context import Context
from gen.onnx.handlers.affine import affine, turned_copy
from gen.onnx.model import NodeError
from gen.onnx.pooling import copy, sign_maximum
from gen.onnx.quant_scales import reach
from gen.onnx.registry import Inputs, Registry, at
from gen.onnx.values import (
    Condition,
    Constant,
    Pending,
    PendingPool,
    Quantised,
    QuantisedConstant,
    Real,
    Value,
)

__all__ = ["HANDLERS"]

HANDLERS = Registry()

#: Multiplier and shift of 2.
_TWO = (1 << 16, 15)


def _store_signs(context: Context, value: Pending, above: np.ndarray | None = None) -> Real:
    """Emit a layer that writes +1 where its result is 0 or more (more than 0 in the channels ``above``), else -1."""
    _require_both_signs(value)
    threshold = value.offset + value.bias / value.scale
    # A threshold that is an integer but for float32's rounding is that integer.
    nearest = np.rint(threshold)
    close = np.abs(threshold - nearest) <= 1e-6 * np.maximum(1, np.abs(threshold))
    bias = np.where(close, nearest if above is None else nearest - above, np.floor(threshold))
    furthest = reach(context.graph, value) + 2
    bias = np.clip(bias, -furthest, furthest)
    multiplier, shift = (np.full(value.shape[0], number) for number in _TWO)
    stage = Requantize(bias.astype(np.int64), multiplier, shift, 1, -1, 1)
    return Real(context.graph.add_layer(value, stage, result=Result(context.node, signs=True)), 1.0, 0)


def _require_both_signs(value: Pending | PendingPool) -> None:
    if not value.low < 0 <= value.high:
        raise NodeError(f"follows an activation function of {value.name} that leaves only one sign", code="not-a-sign")


def _store_pooled(context: Context, value: PendingPool) -> Real:
    """Signs of a maximum: the maximum of signs, which a negative factor turns."""
    _require_both_signs(value)
    if not value.factor.all():
        raise NodeError(f"has a factor of 0 after {value.name}; remove the channel", code="not-a-sign")
    falling = value.factor < 0
    inner = replace(value.inner, bias=value.inner.bias + value.shift / value.factor)
    pooled = sign_maximum(context, _store_signs(context, inner, falling), value)
    if not falling.any():
        return pooled
    return _store_signs(context, turned_copy(context, pooled, np.where(falling, -1, 1)))


def _signs_of(context: Context, value: Pending | PendingPool) -> Real:
    if isinstance(value, PendingPool):
        return _store_pooled(context, value)
    source = context.graph.tensors[value.arguments["input"]]
    if (source.signs and value.only_copies and source.shape == value.shape and value.low < 0 <= value.high
            and (-value.scale <= value.bias).all() and (value.bias < value.scale).all()):
        # Signs, moved away from zero.
        return Real(Quantised(source.name, value.order, False), 1.0, 0)
    return _store_signs(context, value)


@HANDLERS.handles("GreaterOrEqual", "Greater", "LessOrEqual", "Less", conditions=(
    "of an activation and a constant for each channel, with a Where after it: a sign ([binary "
    "layers](binary.md))"))
def compare(context: Context, inputs: Inputs) -> Value:
    op = context.node.op
    constants = [isinstance(v, Constant | QuantisedConstant) for v in inputs]
    if sum(constants) != 1:
        raise NodeError("compares two activations; only an activation and a constant make a threshold",
                        code="not-a-sign")
    first = constants.index(False)
    number = constant(inputs[1 - first], "the threshold").astype(np.float64)
    # value >= number, number >= value; the others are their opposites.
    rising = (op in ("GreaterOrEqual", "Less")) == (first == 0)
    slope = np.ones(1) if rising else -np.ones(1)
    result = affine(context, inputs[first], slope, -number * slope, always=True)
    assert isinstance(result, Pending | PendingPool)
    return Condition(result, op in ("Greater", "Less"))


@HANDLERS.handles("Where", conditions="after a comparison, with 1 and -1: a sign")
def where(context: Context, inputs: Inputs) -> Value:
    """1 and -1 by a condition: a sign."""
    condition = inputs[0]
    if not isinstance(condition, Condition):
        raise NodeError("its condition must be a comparison of an activation with a constant", code="not-a-sign")
    yes, no = (scalar(at(inputs, i), "its operand") for i in (1, 2))
    if condition.inverted:
        yes, no = no, yes
    if (yes, no) == (1, -1):
        return _signs_of(context, condition.value)
    if (yes, no) != (-1, 1):
        raise NodeError(f"chooses between {yes:g} and {no:g}; only 1 and -1 make a sign", code="not-a-sign")
    return _store_signs(context, turned_copy(context, _signs_of(context, condition.value), -1))


@HANDLERS.handles("Sign", conditions="in the layer in front of it, else as a copy")
def sign(context: Context, inputs: Inputs) -> Value:
    value = inputs[0]
    if isinstance(value, Pending | PendingPool):
        return _signs_of(context, value)
    real = context.activation(value)
    if context.graph.tensors[real.quantised.tensor].signs:
        return replace(real, scale=1.0)
    return _store_signs(context, replace(copy(context, real), nodes=()))
