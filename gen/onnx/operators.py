"""Quantising, rearranging and activation functions of plain ONNX."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

from gen.ir.graph import MAX_VALUES, HostStep
from gen.onnx.binary import joined
from gen.onnx.handlers import MICROSOFT, Registry, at
from gen.onnx.layers import copy
from gen.onnx.model import Node
from gen.onnx.values import (
    Constant,
    Host,
    Pending,
    PendingAdd,
    PendingPool,
    Quantised,
    QuantisedConstant,
    QuantisedPadded,
    RawInput,
    Real,
    Value,
    layout_steps,
    quantisation,
)

if TYPE_CHECKING:
    from gen.onnx.importer import Importer

__all__ = ["HANDLERS", "dequantized", "softmax_of", "zero_point"]

HANDLERS = Registry()

#: Types of constants that can be dequantised.
_QUANTISED = [helper.tensor_dtype_to_np_dtype(number) for number in (
    TensorProto.INT8, TensorProto.UINT8, TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2,
    TensorProto.INT16, TensorProto.UINT16, TensorProto.INT32)]


# -- quantising ----------------------------------------------------------------------------------------------------


def zero_point(importer: "Importer", node: Node, value: Value | None,
               default: type[np.generic] = np.uint8) -> tuple[int, bool]:
    """(zero point, unsigned) of an activation; its type is that of the quantised tensor."""
    if value is None:
        return 0, default is np.uint8
    array = importer.parameter(node, value, "the zero point")
    if array.dtype not in (np.int8, np.uint8):
        importer.fail(node, f"activations must be int8 or uint8, not {array.dtype}; quantise the model to 8 bits")
    return int(importer.scalar(node, value, "the zero point")), array.dtype == np.uint8


@HANDLERS.handles("QuantizeLinear", domains=["", MICROSOFT])
def quantize_linear(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    default: type[np.generic] = np.uint8
    if node.attributes.get("output_dtype"):
        default = helper.tensor_dtype_to_np_dtype(node.attributes["output_dtype"]).type
        if default not in (np.int8, np.uint8):
            importer.fail(node, f"activations must be int8 or uint8, not {default.__name__}; quantise to 8 bits")
    point, unsigned = zero_point(importer, node, at(inputs, 2), default)
    return importer.quantize(node, inputs[0], importer.activation_scale(node, inputs[1]), point, unsigned)


def dequantized(importer: "Importer", node: Node, value: Value | None, scale: Value | None, point: Value | None,
                axis: int) -> Value:
    """``value`` dequantised; ``axis`` is that of a constant's scales."""
    if isinstance(value, Constant):
        scales = importer.float_scales(node, scale)
        points = np.zeros(scales.shape, np.int64) if point is None else importer.parameter(
            node, point, "the zero point")
        if scales.size != points.size:
            importer.fail(node, f"has {scales.size} scales and {points.size} zero points; their numbers must be equal")
        if value.array.dtype not in _QUANTISED or (point is not None and points.dtype != value.array.dtype):
            importer.fail(node, f"its input is {value.array.dtype} and its zero point {points.dtype}; both must be of "
                                f"one type, {', '.join(map(str, _QUANTISED))}")
        if scales.size != 1 and (not 0 <= axis < value.array.ndim or scales.size != value.array.shape[axis]):
            importer.fail(node, f"{scales.size} scales do not fit axis {axis} of a constant of shape "
                                f"{value.array.shape}; quantise weights per tensor or per output channel")
        return QuantisedConstant(value.array, scales.reshape(-1), points.reshape(-1), axis % max(1, value.array.ndim))
    number = importer.activation_scale(node, scale)
    if isinstance(value, QuantisedPadded):
        padded = value.padded
        real = dequantized(importer, node, padded.real.quantised, scale, point, axis)
        assert isinstance(real, Real)
        return replace(padded, real=real)
    if not isinstance(value, Host | Quantised):
        importer.fail(node, "its input is not a quantised tensor; put a QuantizeLinear in front of it")
    unsigned_input = value.unsigned if isinstance(value, Quantised) else _quantised_last(importer, node, value)
    onnx_point, unsigned = zero_point(importer, node, point, np.uint8 if unsigned_input else np.int8)
    if unsigned != unsigned_input:
        importer.fail(node, "its zero point and its input are not of one type, int8 or uint8; export the model again")
    if isinstance(value, Host):
        return value.then(quantisation("dequantize", number, onnx_point, unsigned))
    return Real(value, number, onnx_point - 128 if unsigned else onnx_point)


def _quantised_last(importer: "Importer", node: Node, value: Host) -> bool:
    """Whether a quantised result of the processor is unsigned."""
    steps = [step for step in value.steps if step.kind in ("quantize", "dequantize", "softmax")]
    if not steps or steps[-1].kind != "quantize":
        importer.fail(node, "its input is not a quantised tensor; put a QuantizeLinear in front of it")
    return bool(steps[-1].parameters["unsigned"])


@HANDLERS.handles("DequantizeLinear", domains=["", MICROSOFT])
def dequantize_linear(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    if node.attributes.get("block_size"):
        importer.fail(node, "block-wise scales are not supported; quantise weights per tensor or per output channel")
    axis = int(node.attributes.get("axis", 1))
    if axis < 0 and isinstance(inputs[0], Constant):
        axis += inputs[0].array.ndim
    return dequantized(importer, node, inputs[0], inputs[1], at(inputs, 2), axis)


# -- arrangement ---------------------------------------------------------------------------------------------------


def _rearranged(importer: "Importer", node: Node, value: Value | None,
                change: Callable[[np.ndarray], np.ndarray]) -> Value:
    """``value`` with its elements in the arrangement that ``change`` makes of an array of its shape."""
    match value:
        case Real():
            return replace(value, quantised=replace(value.quantised, order=change(value.order)))
        case Quantised() | RawInput():
            return replace(value, order=change(value.order))
        case Pending() | PendingAdd():
            return replace(value, order=change(value.order), nodes=(*value.nodes, node.name))
        case QuantisedConstant() if value.scale.size == value.zero_point.size == 1:
            return replace(value, array=change(value.array))
        case Host():
            after = change(value.order)
            steps = (*value.steps, *layout_steps(value.order.shape[1:], after))
            return Host(value.tensor, steps, np.arange(after.size).reshape(after.shape))
    importer.refuse(node, value, "its input")


def _keeps_samples(importer: "Importer", node: Node, order: np.ndarray) -> np.ndarray:
    if not order.size:
        importer.fail(node, "leaves nothing of its input")
    if order.ndim < 2 or order.shape[0] != 1:
        importer.fail(node, f"makes shape {order.shape} of one sample; the first axis must stay that of the samples")
    return order


@HANDLERS.handles("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    def change(array: np.ndarray) -> np.ndarray:
        if node.op == "Flatten":
            axis = int(node.attributes.get("axis", 1))
            axis += array.ndim if axis < 0 else 0
            return array.reshape(int(np.prod(array.shape[:axis])), -1)
        if node.op == "Reshape":
            wanted = list(importer.integers(node, at(inputs, 1), "the shape"))
            if not node.attributes.get("allowzero"):
                wanted = [array.shape[i] if n == 0 else n for i, n in enumerate(wanted)]
            return array.reshape(wanted)
        axes = importer.axes(node, at(inputs, 1))
        if node.op == "Unsqueeze":
            return np.expand_dims(array, axes)
        return array.squeeze(axes or tuple(i for i in range(1, array.ndim) if array.shape[i] == 1))

    if isinstance(inputs[0], QuantisedConstant):
        return _rearranged(importer, node, inputs[0], change)
    return _rearranged(importer, node, inputs[0], lambda array: _keeps_samples(importer, node, change(array)))


@HANDLERS.handles("Transpose")
def transpose(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    value, axes = inputs[0], node.attributes.get("perm")
    if isinstance(value, QuantisedConstant):
        axes = axes or list(range(value.array.ndim))[::-1]
        return replace(value, array=value.array.transpose(axes), axis=list(axes).index(value.axis))
    return _rearranged(importer, node, value,
                       lambda array: _keeps_samples(importer, node, array.transpose(axes or range(array.ndim)[::-1])))


def _evaluated(importer: "Importer", node: Node, value: Value, constants: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The orders that a node makes of an activation's, by onnx's own definition of the operator."""
    assert not isinstance(value, Constant | QuantisedConstant)
    orders = importer.fold.moved(node, {node.inputs[0]: value.order, **constants})
    return [_keeps_samples(importer, node, order) for order in orders]


@HANDLERS.handles("DepthToSpace", "SpaceToDepth")
def blocks(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    value = inputs[0]
    if value is None or isinstance(value, QuantisedConstant):
        importer.refuse(node, value, "its input")
    (order,) = _evaluated(importer, node, value, {})
    return _rearranged(importer, node, value, lambda _: order)


@HANDLERS.handles("Slice", "Split", "Gather")
def select(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """Parts of a tensor, which nothing but outputs can be."""
    value = inputs[0]
    if not isinstance(value, Real | Quantised | Host):
        importer.refuse(node, value, "its input")
    constants = {name: importer.constant(node, v, f"its input {name}")
                 for name, v in zip(node.inputs[1:], inputs[1:], strict=True) if name}
    orders = _evaluated(importer, node, value, constants)
    return [_rearranged(importer, node, value, lambda _, order=order: order) for order in orders]  # type: ignore[misc]


@HANDLERS.handles("Concat")
def concat(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    """Parts of one tensor side by side."""
    parts: list[Real | Quantised] = []
    for value in inputs:
        if not isinstance(value, Real | Quantised):
            importer.refuse(node, value, "one of its inputs")
        parts.append(value)
    if len({_without_order(value) for value in parts}) > 1:
        importer.fail(node, "joins tensors of different layers, or of different scales; the machine moves no data: "
                            "make each of them an output of the model")
    if sum(value.order.size for value in parts) > MAX_VALUES:
        importer.fail(node, f"makes more than {MAX_VALUES:,} values")
    joined_order = np.concatenate([value.order for value in parts], int(node.attributes.get("axis", 1)))
    return _rearranged(importer, node, parts[0], lambda _: _keeps_samples(importer, node, joined_order))


def _without_order(value: Real | Quantised) -> tuple[object, ...]:
    if isinstance(value, Real):
        return value.quantised.tensor, value.scale, value.zero_point
    return value.tensor, value.unsigned


@HANDLERS.handles("Identity", "Dropout")
def identity(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    if inputs[0] is None:
        importer.fail(node, "lacks its input; export the model again")
    return inputs[0]


@HANDLERS.handles("Shape")
def shape(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    value = inputs[0]
    if value is None or isinstance(value, Constant | QuantisedConstant):
        importer.fail(node, "lacks its input; export the model again")
    dims = value.order.shape
    return Constant(np.array(dims[node.attributes.get("start", 0):node.attributes.get("end", len(dims))], np.int64))


# -- activation functions ------------------------------------------------------------------------------------------


@HANDLERS.handles("Relu", "Clip")
def clip(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    low, high = (0.0, np.inf) if node.op == "Relu" else (-np.inf, np.inf)
    if node.op == "Clip":
        low = importer.scalar(node, at(inputs, 1), "the minimum", float(node.attributes.get("min", -np.inf)))
        high = importer.scalar(node, at(inputs, 2), "the maximum", float(node.attributes.get("max", np.inf)))
    value = inputs[0]
    if isinstance(value, Real):
        value = copy(importer, node, importer.activation(node, value))
        return replace(value, low=low, high=high)
    if isinstance(value, Pending | PendingAdd | PendingPool):
        return value.clipped(low, high, node.name)
    importer.refuse(node, value, "its input")


@HANDLERS.handles("Softmax")
def softmax(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    return softmax_of(importer, node, inputs[0], importer.model.opset)


def softmax_of(importer: "Importer", node: Node, value: Value | None, opset: int) -> Host:
    """Softmax by the processor, with the meaning of ``axis`` in ``opset``."""
    if isinstance(value, Host):
        importer.fail(node, "follows an operator of the processor's part; only one Softmax may end a model")
    host = joined(importer, value) if isinstance(value, Pending) else None
    if isinstance(value, Real):
        host = importer.host(value)
    if host is None or value is None:
        importer.refuse(node, value, "its input")
    dims = host.order.shape
    old = opset < 13         # all axes from ``axis`` on are one
    axis = int(node.attributes.get("axis", 1 if old else -1)) % len(dims)
    if axis == 0:
        importer.fail(node, "is over the samples; give it another axis")
    if not old or int(np.prod(dims[axis + 1:])) == 1:
        return host.then(HostStep("softmax", {"axis": axis}))
    flat = host.then(HostStep("reshape", {"shape": (-1, *dims[1:axis], int(np.prod(dims[axis:])))}))
    return flat.then(HostStep("softmax", {"axis": axis})).then(HostStep("reshape", {"shape": (-1, *dims[1:])}))
