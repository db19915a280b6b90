"""QuantizeLinear and DequantizeLinear."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from onnx import TensorProto, helper

from gen.onnx.constants import activation_scale, float_scales, parameter, scalar
from gen.onnx.context import Context
from gen.onnx.edges import pad_integer
from gen.onnx.model import MICROSOFT, NodeError
from gen.onnx.quantise import quantize
from gen.onnx.registry import Inputs, Place, Registry, at
from gen.onnx.values import (
    Constant,
    Host,
    Quantisation,
    Quantised,
    QuantisedConstant,
    QuantisedPadded,
    Real,
    Value,
)

__all__ = ["HANDLERS", "dequantized", "same_integers", "zero_point"]

HANDLERS = Registry()

#: Types of constants that can be dequantised.
_QUANTISED = [helper.tensor_dtype_to_np_dtype(number) for number in (
    TensorProto.INT8, TensorProto.UINT8, TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2,
    TensorProto.INT16, TensorProto.UINT16, TensorProto.INT32)]

#: The way out for wider activations.
_EIGHT_BITS = ("quantise the model again, with activations of 8 bits (activation_type of onnxruntime.quantization), or "
               "with --calibrate")


def zero_point(value: Value | None, default: type[np.generic] = np.uint8) -> tuple[int, bool]:
    """(zero point, unsigned) of an activation; its type is that of the quantised tensor."""
    if value is None:
        return 0, default is np.uint8
    array = parameter(value, "the zero point")
    if array.dtype not in (np.int8, np.uint8):
        raise NodeError(f"activations must be int8 or uint8, not {array.dtype}; {_EIGHT_BITS}", code="value-type")
    return int(scalar(value, "the zero point")), array.dtype == np.uint8


@HANDLERS.handles("QuantizeLinear", domains=["", MICROSOFT], conditions=(
    "the end of the layer in front of it; after a DequantizeLinear nothing where scale and zero point stay, or "
    "only uint8 becomes int8 or back, else a copy; at inputs and outputs by the processor. One positive scale, "
    "int8 or uint8"))
def quantize_linear(context: Context, inputs: Inputs) -> Value:
    attributes = context.node.attributes
    default: type[np.generic] = np.uint8
    if attributes.get("output_dtype"):
        default = helper.tensor_dtype_to_np_dtype(attributes["output_dtype"]).type
        if default not in (np.int8, np.uint8):
            raise NodeError(f"activations must be int8 or uint8, not {default.__name__}; {_EIGHT_BITS}",
                            code="value-type")
    point, unsigned = zero_point(at(inputs, 2), default)
    return quantize(context, inputs[0], Quantisation(activation_scale(inputs[1]), point, unsigned))


def _constant(value: Constant, scale: Value | None, point: Value | None, axis: int) -> QuantisedConstant:
    scales = float_scales(scale)
    if not np.isfinite(scales).all():
        raise NodeError("the scales of a constant must be finite", code="bad-scale")
    points = np.zeros(scales.shape, np.int64) if point is None else parameter(point, "the zero point")
    if scales.size != points.size:
        raise NodeError(f"has {scales.size} scales and {points.size} zero points; their numbers must be equal",
                        code="bad-scale")
    if value.array.dtype not in _QUANTISED or (point is not None and points.dtype != value.array.dtype):
        raise NodeError(f"its input is {value.array.dtype} and its zero point {points.dtype}; both must be of "
                        f"one type, {', '.join(map(str, _QUANTISED))}", code="value-type")
    if scales.size != 1 and (not 0 <= axis < value.array.ndim or scales.size != value.array.shape[axis]):
        raise NodeError(f"{scales.size} scales do not fit axis {axis} of a constant of shape "
                        f"{value.array.shape}; quantise weights per tensor or per output channel", code="bad-scale")
    return QuantisedConstant(value.array, scales.reshape(-1), points.reshape(-1), axis % max(1, value.array.ndim))


def dequantized(value: Value | None, scale: Value | None, point: Value | None, axis: int) -> Value:
    """``value`` dequantised; ``axis`` is that of a constant's scales."""
    if isinstance(value, Constant):
        return _constant(value, scale, point, axis)
    number = activation_scale(scale)
    if isinstance(value, QuantisedPadded):
        padded = value.padded
        real = dequantized(padded.real.quantised, scale, point, axis)
        assert isinstance(real, Real)
        return replace(padded, real=real, number=(pad_integer(padded) - real.zero_point) * real.scale)
    if not isinstance(value, Host | Quantised):
        raise NodeError("its input is not a quantised tensor; put a QuantizeLinear in front of it",
                        code="not-quantised")
    unsigned_input = value.unsigned if isinstance(value, Quantised) else _quantised_last(value)
    onnx_point, unsigned = zero_point(point, np.uint8 if unsigned_input else np.int8)
    if unsigned != unsigned_input:
        raise NodeError("its zero point and its input are not of one type, int8 or uint8; export the model again",
                        code="value-type")
    quantisation = Quantisation(number, onnx_point, unsigned)
    if isinstance(value, Host):
        return value.then(quantisation.step("dequantize"))
    return Real(value, number, quantisation.internal)


@HANDLERS.handles("Cast", place=Place.COMPILER, conditions=(
    "of int8 or uint8 to float32 as a DequantizeLinear with the scale 1, as where a model takes pixels as bytes; any "
    "other that is not to the type that a value has already as part of a table, or by the processor"))
def cast(context: Context, inputs: Inputs) -> Value:
    value, to = inputs[0], int(context.node.attributes["to"])
    if not isinstance(value, Quantised) or to != TensorProto.FLOAT:
        raise NodeError(f"makes {helper.tensor_dtype_to_np_dtype(to)} of what it reads; a layer reads and makes int8 "
                        "and uint8, which alone can become float32", code="value-type")
    return Real(value, 1.0, -128 if value.unsigned else 0)


def _quantised_last(value: Host) -> bool:
    """Whether a quantised result of the processor is unsigned."""
    steps = [step for step in value.steps if step.kind in ("quantize", "dequantize", "softmax")]
    if not steps or steps[-1].kind != "quantize":
        raise NodeError("its input is not a quantised tensor; put a QuantizeLinear in front of it",
                        code="not-quantised")
    return bool(steps[-1].parameters["unsigned"])


def same_integers(context: Context, value: Quantised, pick: Callable[[Real], Value]) -> Value:
    """What ``pick`` takes of integers: an operator that gives some of its input's values does so in any scale."""
    placed = context.graph.tensor(value, 1.0, 0)
    tensor = context.graph.tensors[placed.tensor]
    result = pick(Real(placed, tensor.scale, tensor.zero_point))
    if isinstance(result, Real):
        return result.quantised
    point = tensor.zero_point + 128 if value.unsigned else tensor.zero_point
    return quantize(context, result, Quantisation(tensor.scale, point, value.unsigned))


@HANDLERS.handles("DequantizeLinear", domains=["", MICROSOFT], place=Place.COMPILER, conditions=(
    "how an int8 or uint8 tensor, or a constant, is read; at outputs by the processor. Constants with scales of blocks "
    "get eight bits and a scale for each channel"))
def dequantize_linear(context: Context, inputs: Inputs) -> Value:
    attributes = context.node.attributes
    if attributes.get("block_size"):
        raise NodeError("scales of blocks are taken of constants alone, a finite one for each block; quantise other "
                        "tensors with one scale",
                        code="unsupported-form", attribute="block_size")
    axis = int(attributes.get("axis", 1))
    if axis < 0 and isinstance(inputs[0], Constant):
        axis += inputs[0].array.ndim
    return dequantized(inputs[0], inputs[1], at(inputs, 2), axis)
