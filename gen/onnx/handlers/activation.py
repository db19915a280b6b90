"""Activation functions."""

from dataclasses import replace

import numpy as np

from gen.onnx.constants import scalar
from gen.onnx.context import Context
from gen.onnx.model import NodeError
from gen.onnx.pooling import copy
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Registry, at
from gen.onnx.values import Pending, PendingAdd, PendingConcat, PendingPool, Real, Value

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
    if isinstance(value, Pending | PendingAdd | PendingConcat | PendingPool):
        return value.clipped(low, high, node.name)
    raise refusal(value, "its input")


@HANDLERS.handles("LeakyRelu", conditions=(
    "of a quantised tensor, as a copy that adds: `alpha * x + (1 - alpha) * max(x, 0)`, rounded once; three "
    "cycles for each pixel of a block. `alpha` must not be negative"))
def leaky_relu(context: Context, inputs: Inputs) -> Value:
    """A tensor plus its positive part, both scaled: ``alpha * x + (1 - alpha) * max(x, 0)``, rounded once.

    Above an alpha of 1 it is ``x + (alpha - 1) * min(x, 0)``: scales stay positive.
    """
    node = context.node
    alpha = float(node.attributes.get("alpha", 0.01))
    if not 0 <= alpha < np.inf:
        raise NodeError(f"alpha must not be negative, not {alpha:g}: the machine has no falling activation functions")
    real = context.activation(inputs[0])
    if alpha == 1:
        return real
    low, high = (0.0, np.inf) if alpha < 1 else (-np.inf, 0.0)
    bent = replace(copy(context, replace(real, scale=real.scale * abs(1 - alpha))), low=low, high=high)
    if alpha == 0:
        return bent
    straight = replace(real, scale=real.scale * min(1.0, alpha))
    return PendingAdd(name=node.name, nodes=(node.name,), order=real.order, a=replace(bent, nodes=()), b=straight)
