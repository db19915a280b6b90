"""Softmax: the processor computes it at the end of a model, the row unit elsewhere."""

from dataclasses import replace

import numpy as np

from gen.ir.host import HostStep
from gen.onnx.context import Context
from gen.onnx.exact_sums import exact_sums
from gen.onnx.model import NodeError
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Place, Registry
from gen.onnx.rows import softmax_rows
from gen.onnx.values import Host, Pending, Real, Value

__all__ = ["HANDLERS", "softmax_of"]

HANDLERS = Registry()


@HANDLERS.handles("Softmax", place=Place.EDGES, conditions=(
    "at the end of the model; its input and its result may be rearranged or cut. Not over the samples. With "
    "`--features rows`, between quantised values, over the channels of pixels or of heads: a layer of its own, "
    "of up to 1,024; not the last one of a single row, which the processor computes beside the next sample"))
def softmax(context: Context, inputs: Inputs) -> Value:
    return softmax_of(context, inputs[0], context.opset)


def softmax_of(context: Context, value: Value | None, opset: int) -> Host:
    """Softmax on the processor, with the layer that it is if it is quantised; ``opset`` decides what ``axis`` means."""
    if isinstance(value, Host):
        raise NodeError("follows an operator of the processor's part; only one Softmax may end a model",
                        code="after-processor")
    layer = None
    if isinstance(value, Real) and not _is_little(context, value, opset) and context.units.have("rows"):
        layer = softmax_rows(context, value, _axis(context, opset, value.order.ndim))
    host = exact_sums(context.graph, value) if isinstance(value, Pending) else None
    if isinstance(value, Real):
        host = context.graph.host(value)
    if host is None or value is None:
        raise refusal(value, "its input")
    host = replace(host, maker=context.node.name)
    dims = host.order.shape
    old = opset < 13         # all axes from ``axis`` on are one
    axis = _axis(context, opset, len(dims))
    if axis == 0:
        raise NodeError("is over the samples; give it another axis", code="samples-axis")
    if not old or int(np.prod(dims[axis + 1:])) == 1:
        return replace(host.then(HostStep("softmax", {"axis": axis})), layer=layer)
    flat = host.then(HostStep("reshape", {"shape": (-1, *dims[1:axis], int(np.prod(dims[axis:])))}))
    return flat.then(HostStep("softmax", {"axis": axis})).then(HostStep("reshape", {"shape": (-1, *dims[1:])}))


def _is_little(context: Context, value: Real, opset: int) -> bool:
    """Whether it is one row that nothing on the machine reads.

    Loading such a row and passing through it takes hundreds of cycles in which the array stands still. The processor
    computes it while the machine has the next sample.
    """
    return context.node.name in context.graph.last and value.order.shape[_axis(context, opset, value.order.ndim)] == (
        value.order.size)


def _axis(context: Context, opset: int, axes: int) -> int:
    return int(context.node.attributes.get("axis", 1 if opset < 13 else -1)) % axes
