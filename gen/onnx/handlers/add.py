"""Sums: of two tensors, and of a tensor and a constant."""

import numpy as np

from gen.onnx.broadcast import paired
from gen.onnx.channels import chosen
from gen.onnx.constants import constant
from gen.onnx.context import Context
from gen.onnx.handlers.affine import affine
from gen.onnx.model import NodeError
from gen.onnx.registry import Inputs, Registry
from gen.onnx.values import Constant, Pending, PendingAdd, PendingPool, QuantisedConstant, Real, Value

__all__ = ["HANDLERS", "add"]

HANDLERS = Registry()


@HANDLERS.handles("Add", conditions=(
    "of two tensors of one shape in the layer that makes one of them, else a copy that adds; with `--features "
    "product`, of a tensor and one number for each channel that the model computes, too; of a constant for "
    "each channel in the bias of the layer in front of it, else a depthwise layer"))
def add(context: Context, inputs: Inputs) -> Value:
    values = list(inputs)
    constants = [v for v in values if isinstance(v, Constant | QuantisedConstant)]
    others = [v for v in values if isinstance(v, Pending | PendingPool | Real)]
    if len(constants) == 1 and len(others) == 1:
        return affine(context, others[0], np.ones(1), constant(constants[0], "the bias"))
    if sorted(type(v).__name__ for v in values) == ["Pending", "Real"]:
        return _add_to_result(context, *values)
    a, b = (context.activation(v, f"operand {context.node.inputs[i]}") for i, v in enumerate(values))
    return _sum(context, a, b)


def _add_to_result(context: Context, a: Value | None, b: Value | None) -> PendingAdd:
    """A tensor added to a layer's unquantised result."""
    result, other = (a, b) if isinstance(a, Pending) else (b, a)
    assert isinstance(result, Pending)
    return _sum(context, result, context.activation(other))


def _sum(context: Context, a: Real | Pending, b: Real) -> PendingAdd:
    if isinstance(a, Real):
        a, b = paired(context, a, b)
    else:
        if not np.array_equal(a.order, b.order):    # perhaps their channels alone are in different orders
            b = chosen(context.graph, b)
        shape = context.graph.tensors[b.quantised.tensor].shape
        if a.shape != shape or not np.array_equal(a.order, b.order):
            raise NodeError(f"operands of shapes {a.order.shape} and {b.order.shape} are not arranged alike; "
                            "the machine adds tensors of one shape")
    name = context.node.name
    return PendingAdd(name=name, nodes=(name,), order=a.order, a=a, b=b, moved_by=a.moved_by)
