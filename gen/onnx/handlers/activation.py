"""Activation functions."""

from dataclasses import replace

import numpy as np

from gen.onnx.constants import scalar
from gen.onnx.context import Context
from gen.onnx.pooling import copy
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Registry, at
from gen.onnx.values import Pending, PendingAdd, PendingPool, Real, Value

__all__ = ["HANDLERS"]

HANDLERS = Registry()


@HANDLERS.handles("Relu", "Clip")
def clip(context: Context, inputs: Inputs) -> Value:
    node, value = context.node, inputs[0]
    low, high = (0.0, np.inf) if node.op == "Relu" else (-np.inf, np.inf)
    if node.op == "Clip":
        low = scalar(at(inputs, 1), "the minimum", float(node.attributes.get("min", -np.inf)))
        high = scalar(at(inputs, 2), "the maximum", float(node.attributes.get("max", np.inf)))
    if isinstance(value, Real):
        return replace(copy(context, context.activation(value)), low=low, high=high)
    if isinstance(value, Pending | PendingAdd | PendingPool):
        return value.clipped(low, high, node.name)
    raise refusal(value, "its input")
