"""Softmax, which the processor computes at the end of a model."""

from dataclasses import replace

import numpy as np

from gen.ir.host import HostStep
from gen.onnx.context import Context
from gen.onnx.exact_sums import exact_sums
from gen.onnx.model import NodeError
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Place, Registry
from gen.onnx.values import Host, Pending, Real, Value

__all__ = ["HANDLERS", "softmax_of"]

HANDLERS = Registry()


@HANDLERS.handles("Softmax", place=Place.EDGES, conditions=(
    "at the end of the model; its input and its result may be rearranged or cut. Not over the samples"))
def softmax(context: Context, inputs: Inputs) -> Value:
    return softmax_of(context, inputs[0], context.opset)


def softmax_of(context: Context, value: Value | None, opset: int) -> Host:
    """Softmax on the processor; ``opset`` decides what ``axis`` means."""
    if isinstance(value, Host):
        raise NodeError("follows an operator of the processor's part; only one Softmax may end a model",
                        code="after-processor")
    host = exact_sums(context.graph, value) if isinstance(value, Pending) else None
    if isinstance(value, Real):
        host = context.graph.host(value)
    if host is None or value is None:
        raise refusal(value, "its input")
    host = replace(host, maker=context.node.name)
    dims = host.order.shape
    old = opset < 13         # all axes from ``axis`` on are one
    axis = int(context.node.attributes.get("axis", 1 if old else -1)) % len(dims)
    if axis == 0:
        raise NodeError("is over the samples; give it another axis", code="samples-axis")
    if not old or int(np.prod(dims[axis + 1:])) == 1:
        return host.then(HostStep("softmax", {"axis": axis}))
    flat = host.then(HostStep("reshape", {"shape": (-1, *dims[1:axis], int(np.prod(dims[axis:])))}))
    return flat.then(HostStep("softmax", {"axis": axis})).then(HostStep("reshape", {"shape": (-1, *dims[1:])}))
