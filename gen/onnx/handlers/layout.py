"""Operators that only move elements, or take some of them."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gen.onnx.arrangement import possible, rearranged
from gen.onnx.constants import axes, constant, integers
from gen.onnx.context import Context
from gen.onnx.model import NodeError
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Place, Registry, at
from gen.onnx.values import Constant, Host, Quantised, QuantisedConstant, Real, Value

__all__ = ["HANDLERS"]

HANDLERS = Registry()


@HANDLERS.handles("Reshape", "Flatten", "Squeeze", "Unsqueeze", place=Place.EDGES, conditions=(
    "in any chain; in front of a Gemm in its weights; what only orders channels anew (a channel shuffle) in the "
    "weights of convolutions after it, or as a 1x1 convolution that picks them, and what orders pixels anew, or takes "
    "some of them, in all channels alike (windows, patches, shifts) as a layer that moves them. Else nothing moves "
    "inside the machine: a layer after them must find its channels, rows and columns as they were"))
def reshape(context: Context, inputs: Inputs) -> Value:
    node = context.node

    def change(array: np.ndarray) -> np.ndarray:
        if node.op == "Flatten":
            axis = int(node.attributes.get("axis", 1))
            axis += array.ndim if axis < 0 else 0
            return array.reshape(int(np.prod(array.shape[:axis])), -1)
        if node.op == "Reshape":
            wanted = list(integers(at(inputs, 1), "the shape"))
            if not node.attributes.get("allowzero"):
                wanted = [array.shape[i] if n == 0 else n for i, n in enumerate(wanted)]
            return array.reshape(wanted)
        named = axes(node, at(inputs, 1))
        if node.op == "Unsqueeze":
            return np.expand_dims(array, named)
        return array.squeeze(named or tuple(i for i in range(1, array.ndim) if array.shape[i] == 1))

    if isinstance(inputs[0], QuantisedConstant):
        return rearranged(node, inputs[0], change)
    return rearranged(node, inputs[0], lambda array: possible(change(array)))


@HANDLERS.handles("Transpose", place=Place.EDGES, conditions="as Reshape")
def transpose(context: Context, inputs: Inputs) -> Value:
    value, order = inputs[0], context.node.attributes.get("perm")
    if isinstance(value, QuantisedConstant):
        order = order or list(range(value.array.ndim))[::-1]
        return replace(value, array=value.array.transpose(order), axis=list(order).index(value.axis))
    return rearranged(context.node, value,
                      lambda array: possible(array.transpose(order or range(array.ndim)[::-1])))


def _evaluated(context: Context, value: Value, constants: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The orders that a node makes of an activation's, by onnx's own definition of the operator."""
    assert not isinstance(value, Constant | QuantisedConstant)
    orders = context.folder.moved(context.node, {context.node.inputs[0]: value.order, **constants})
    return [possible(order) for order in orders]


@HANDLERS.handles("DepthToSpace", "SpaceToDepth", place=Place.EDGES, conditions="as Reshape")
def blocks(context: Context, inputs: Inputs) -> Value:
    value = inputs[0]
    if value is None or isinstance(value, QuantisedConstant):
        raise refusal(value, "its input")
    (order,) = _evaluated(context, value, {})
    return rearranged(context.node, value, lambda _: order)


@HANDLERS.handles("Slice", "Split", "Gather", place=Place.EDGES, conditions=(
    "any part there. In front of a layer, too: of channels no work where they are neighbours, as layers read a part of "
    "the tensor, else a 1x1 convolution that picks them; rows and columns at a fixed distance by a depthwise "
    "convolution whose kernel reaches from the first to the cut, beyond 63 by a layer that moves pixels"))
def select(context: Context, inputs: Inputs) -> list[Value]:
    """Some elements of a tensor; layers can read those that are whole channels (`gen.onnx.channels`)."""
    return _taken(context, inputs)


@HANDLERS.handles("Tile", "Expand", place=Place.EDGES, conditions=(
    "as Slice. In front of a layer where, rearranged or not, each row and each column is repeated as often, as Keras "
    "writes its UpSampling2D: as Resize"))
def repeat(context: Context, inputs: Inputs) -> list[Value]:
    """Elements of a tensor, several times; layers can read repeated pixels (`gen.onnx.edges.enlarged`)."""
    return _taken(context, inputs)


def _taken(context: Context, inputs: Inputs) -> list[Value]:
    """The elements that a node takes, in the order that it gives them."""
    node, value = context.node, inputs[0]
    if not isinstance(value, Real | Quantised | Host):
        raise refusal(value, "its input")
    constants = {name: constant(v, f"its input {name}")
                 for name, v in zip(node.inputs[1:], inputs[1:], strict=True) if name}
    orders = _evaluated(context, value, constants)
    return [rearranged(node, value, lambda _, order=order: order) for order in orders]  # type: ignore[misc]


@HANDLERS.handles("Identity", place=Place.COMPILER, conditions="nothing")
def identity(context: Context, inputs: Inputs) -> Value:
    if inputs[0] is None:
        raise NodeError("lacks its input; export the model again", code="contradiction")
    return inputs[0]


@HANDLERS.handles("Dropout", place=Place.COMPILER, conditions="nothing; not in training mode, the first output only")
def dropout(context: Context, inputs: Inputs) -> Value:
    if at(inputs, 2) is not None and constant(at(inputs, 2), "the training mode").any():
        raise NodeError("is in training mode; export the model for inference", code="unsupported-form",
                        attribute="training_mode")
    return identity(context, inputs)


@HANDLERS.handles("Shape", place=Place.COMPILER, conditions="a constant")
def shape(context: Context, inputs: Inputs) -> Value:
    value, attributes = inputs[0], context.node.attributes
    if value is None or isinstance(value, Constant | QuantisedConstant):
        raise NodeError("lacks its input; export the model again", code="contradiction")
    dims = value.order.shape
    return Constant(np.array(dims[attributes.get("start", 0):attributes.get("end", len(dims))], np.int64))
