"""Activation functions."""

from dataclasses import replace

import numpy as np

from gen.onnx.constants import constant, scalar
from gen.onnx.context import Context
from gen.onnx.model import NodeError
from gen.onnx.pooling import copy
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Registry, at
from gen.onnx.values import Pending, PendingAdd, PendingBend, PendingConcat, PendingPool, PendingProduct, Real, Value

__all__ = ["HANDLERS", "leaky_relu"]

HANDLERS = Registry()


@HANDLERS.handles("Relu", "Clip", conditions="in the layer in front of it, else as a copy; constant bounds")
def clip(context: Context, inputs: Inputs) -> Value:
    node, value = context.node, inputs[0]
    low, high = (0.0, np.inf) if node.op == "Relu" else (-np.inf, np.inf)
    if node.op == "Clip":
        low = scalar(at(inputs, 1), "the minimum", float(node.attributes.get("min", -np.inf)))
        high = scalar(at(inputs, 2), "the maximum", float(node.attributes.get("max", np.inf)))
        low = min(low, high)        # where they are the wrong way round, all is the maximum
    if isinstance(value, Real):
        return replace(copy(context, context.activation(value)), low=low, high=high)
    if isinstance(value, Pending | PendingAdd | PendingProduct | PendingBend | PendingConcat | PendingPool):
        return value.clipped(low, high, node.name)
    raise refusal(value, "its input")


@HANDLERS.handles("LeakyRelu", conditions=(
    "of a quantised tensor, in the layer in front of it if nothing else reads that and it adds nothing, else as a "
    "copy; two cycles of the store engine for each pixel of a block. The slope must not be negative"))
def leaky_relu(context: Context, inputs: Inputs) -> Value:
    return _bent(context, inputs[0], float(context.node.attributes.get("alpha", 0.01)), "alpha")


@HANDLERS.handles("PRelu", conditions="as LeakyRelu; one slope for all channels")
def prelu(context: Context, inputs: Inputs) -> Value:
    slopes = constant(at(inputs, 1), "the slope")
    if slopes.size != 1 and np.ptp(slopes):
        raise NodeError(f"has {slopes.size} different slopes; the machine has one for a layer: train it with one, or "
                        "with LeakyRelu")
    return _bent(context, inputs[0], float(slopes.flat[0]), "the slope")


def _bent(context: Context, value: Value | None, slope: float, what: str) -> Value:
    """``value``, times ``slope`` where it is negative; rounded once, behind the rounding of ``value``."""
    if not 0 <= slope < np.inf:
        raise NodeError(f"{what} must not be negative, not {slope:g}: the machine has no falling activation functions")
    node, real = context.node, context.activation(value)
    if slope == 1:
        return real
    if slope == 0:
        return replace(copy(context, real), low=0.0)
    return PendingBend(name=node.name, nodes=(node.name,), order=real.order, real=real, slope=slope)
