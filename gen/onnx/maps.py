"""Constants with a number for each pixel, as position embeddings are: tensors of the graph that have a value."""

from dataclasses import replace
from math import prod

import numpy as np

from gen.onnx.constants import constant
from gen.onnx.context import Context
from gen.onnx.model import NodeError
from gen.onnx.values import Constant, Pending, Quantisation, Quantised, QuantisedConstant, Real

__all__ = ["constant_like", "has_map", "minus", "spread"]


def spread(order: np.ndarray, number: np.ndarray) -> np.ndarray:
    """A constant in the shape of an arrangement. Raises NodeError for one that has another."""
    try:
        return np.broadcast_to(number, order.shape)
    except ValueError:
        raise NodeError(f"its constant of shape {number.shape} repeats an activation of shape {order.shape}, which the "
                        "machine does not", code="operand-shapes") from None


def has_map(context: Context, value: Pending | Real, number: np.ndarray) -> bool:
    """Whether a constant differs from pixel to pixel of a channel of ``value``, all of a tensor."""
    channels = value.order.ravel() // prod(_shape(context, value)[1:])
    numbers = spread(value.order, number).ravel()
    one = np.empty(channels.max() + 1)
    one[channels] = numbers
    return not np.array_equal(one[channels], numbers)


def minus(number: Constant | QuantisedConstant) -> Constant | QuantisedConstant:
    """A constant with the other sign."""
    if isinstance(number, Constant):
        return Constant(-number.array)
    return replace(number, array=-number.integers, zero_point=np.zeros_like(number.zero_point))


def constant_like(context: Context, number: Constant | QuantisedConstant, value: Pending | Real) -> Real:
    """A constant as a tensor that is arranged as ``value``, all of a tensor, is.

    One of 256 steps at most keeps its integers; of others a step is the largest number's 127th part.
    """
    shape = _shape(context, value)
    integers, scale, off = _integers(number)
    low, high = int(integers.min()), int(integers.max())
    point = int(np.clip(0, -128 - low, 127 - high))
    values = np.full(prod(shape), point, np.int8)
    values[value.order.ravel()] = spread(value.order, integers + point).ravel()
    quantisation = Quantisation(scale, point, False)
    name = context.graph.add_constant(f"{context.node.name}/constant", values.reshape(shape), quantisation, off)
    return Real(Quantised(name, value.order, False), scale, point)


def _shape(context: Context, value: Pending | Real) -> tuple[int, int, int]:
    return context.graph.tensors[value.quantised.tensor].shape if isinstance(value, Real) else value.shape


def _integers(number: Constant | QuantisedConstant) -> tuple[np.ndarray, float, float]:
    """Integers, at most 255 apart, a step of them, and how far they are from the numbers at most, in steps."""
    if isinstance(number, QuantisedConstant) and number.scale.size == number.zero_point.size == 1:
        low, high, scale = number.integers.min(), number.integers.max(), number.scale.item()
        if scale > 0 and -255 <= low and high <= 255 and high - low <= 255:
            return number.integers, scale, 0.0
    numbers = constant(number, "the operand").astype(np.float64)
    if not np.isfinite(numbers).all():
        raise NodeError("its constants must be finite", code="bad-scale")
    scale = float(np.abs(numbers).max()) / 127 or 1.0
    return np.rint(numbers / scale).astype(np.int16), scale, 0.5
