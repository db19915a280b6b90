"""Padding in front of a convolution."""

import numpy as np

from gen.onnx.constants import axes, constant, scalar
from gen.onnx.context import Context
from gen.onnx.model import NodeError
from gen.onnx.registry import Inputs, Registry, at
from gen.onnx.values import Padded, Value

__all__ = ["HANDLERS"]

HANDLERS = Registry()


@HANDLERS.handles("Pad")
def pad(context: Context, inputs: Inputs) -> Value:
    """With a number that the tensor can hold."""
    node = context.node
    if node.attributes.get("mode", "constant") != "constant":
        raise NodeError("pads with other than a constant")
    real = context.activation(inputs[0])
    rank = real.order.ndim
    listed = node.attributes.get("pads")
    pads = np.zeros((2, rank), np.int64)
    named = np.array(listed) if listed is not None else constant(at(inputs, 1), "the padding")
    padded = axes(node, at(inputs, 3)) or range(rank)
    pads[:, [axis % rank for axis in padded]] = named.astype(np.int64).reshape(2, -1)
    if rank not in (3, 4) or pads[:, :2].any() or pads.min() < 0:
        raise NodeError("pads other axes than the spatial ones, or cuts")
    number = scalar(at(inputs, 2), "the value", float(node.attributes.get("value", 0.0)))
    raw = number / real.scale + real.zero_point
    if raw != round(raw) or not -128 <= raw <= 127:
        raise NodeError(f"pads with {number:g}, which the quantised tensor cannot hold")
    begin, end = ([0] * (4 - rank) + row[2:].tolist() for row in pads)
    return Padded(real, (begin[0], begin[1], end[0], end[1]), round(raw))
