"""Operators that carry their own scales (QLinearConv and its kin), each as dequantise, plain operator, quantise."""

import numpy as np

from gen.onnx.constants import activation_scale, constant
from gen.onnx.context import Context
from gen.onnx.handlers.activation import leaky_relu
from gen.onnx.handlers.add import added
from gen.onnx.handlers.affine import multiply
from gen.onnx.handlers.concat import concat
from gen.onnx.handlers.conv import convolution
from gen.onnx.handlers.pool import average_pool, over_pixels
from gen.onnx.handlers.product import matrix_product
from gen.onnx.handlers.quantisation import dequantized, zero_point
from gen.onnx.handlers.softmax import softmax_of
from gen.onnx.model import MICROSOFT, NodeError
from gen.onnx.quantise import quantize
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Place, Registry, at
from gen.onnx.values import Constant, Quantisation, Real, Value
from gen.onnx.weights import weights_of

__all__ = ["HANDLERS"]

HANDLERS = Registry()

_PLAIN = "as the plain operator, with the scales that it carries"


def _dequantized(inputs: Inputs, axis: int = 1) -> Value:
    """Three inputs, (value, scale, zero point), dequantised."""
    value, scale, point = inputs
    return dequantized(value, scale, point, axis)


def _quantized(context: Context, value: Value, scale: Value | None, point: Value | None) -> Value:
    number, unsigned = zero_point(point)
    return quantize(context, value, Quantisation(activation_scale(scale), number, unsigned))


def _integer_bias(value: Value | None, scale: np.ndarray) -> Value | None:
    """An int32 bias counts LSBs of the accumulator; ``scale`` is the real value of one, for each channel."""
    if value is None:
        return None
    bias = constant(value, "the bias")
    if bias.dtype != np.int32 or bias.shape not in ((scale.size,), (1, scale.size)):
        raise NodeError(f"its bias must be int32, one number for each of the {scale.size} output channels, not "
                        f"{bias.dtype} of shape {bias.shape}", code="bad-bias")
    return Constant(bias.reshape(-1) * scale)


@HANDLERS.handles("QLinearConv", conditions=_PLAIN)
def qlinear_conv(context: Context, inputs: Inputs) -> Value:
    x, weights = _dequantized(inputs[:3]), _dequantized(inputs[3:6], 0)
    scale = weights_of(weights, 0)[1]
    bias = _integer_bias(at(inputs, 8), context.activation(x).scale * scale)
    return _quantized(context, convolution(context, [x, weights, bias]), inputs[6], inputs[7])


@HANDLERS.handles("QLinearMatMul", conditions=_PLAIN)
def qlinear_matmul(context: Context, inputs: Inputs) -> Value:
    a, b = _dequantized(inputs[:3]), _dequantized(inputs[3:6], 1)
    return _quantized(context, matrix_product(context, [a, b]), inputs[6], inputs[7])


@HANDLERS.handles("QGemm", domains=[MICROSOFT], conditions=_PLAIN)
def qgemm(context: Context, inputs: Inputs) -> Value:
    attributes = context.node.attributes
    axis = 0 if attributes.get("transB") else 1
    a, b = _dequantized(inputs[:3]), _dequantized(inputs[3:6], axis)
    scale = context.activation(a).scale * weights_of(b, axis)[1]
    bias = _integer_bias(at(inputs, 6), scale * float(attributes.get("alpha", 1.0)))
    result = matrix_product(context, [a, b, bias])
    return result if at(inputs, 7) is None else _quantized(context, result, inputs[7], at(inputs, 8))


@HANDLERS.handles("QLinearAdd", domains=[MICROSOFT], conditions=_PLAIN)
def qlinear_add(context: Context, inputs: Inputs) -> Value:
    a, b = _dequantized(inputs[:3]), _dequantized(inputs[3:6])
    return _quantized(context, added(context, [a, b], context.node.inputs[:6:3]), inputs[6], at(inputs, 7))


@HANDLERS.handles("QLinearMul", domains=[MICROSOFT], conditions=_PLAIN)
def qlinear_mul(context: Context, inputs: Inputs) -> Value:
    operands = [_dequantized(inputs[:3]), _dequantized(inputs[3:6])]
    reals = [operand for operand in operands if isinstance(operand, Real)]
    table = context.functions.carried(context.node, "Mul", inputs, reals) if len(reals) == len(operands) else None
    return _quantized(context, table or multiply(context, operands), inputs[6], at(inputs, 7))


@HANDLERS.handles("QLinearSigmoid", domains=[MICROSOFT], conditions=_PLAIN)
def qlinear_sigmoid(context: Context, inputs: Inputs) -> Value:
    real = _dequantized(inputs[:3])
    if not isinstance(real, Real):
        raise refusal(real, "its input")
    result = context.functions.carried(
        context.node, "Sigmoid", inputs, [real],
        NodeError("Sigmoid has no layer on the machine, which has no tables of functions",
                  code="needs-unit", unit="table"))
    assert result is not None
    return _quantized(context, result, inputs[3], at(inputs, 4))


@HANDLERS.handles("QLinearLeakyRelu", domains=[MICROSOFT], conditions=_PLAIN)
def qlinear_leaky_relu(context: Context, inputs: Inputs) -> Value:
    return _quantized(context, leaky_relu(context, [_dequantized(inputs[:3])]), inputs[3], at(inputs, 4))


@HANDLERS.handles("QLinearConcat", domains=[MICROSOFT], conditions=_PLAIN)
def qlinear_concat(context: Context, inputs: Inputs) -> Value:
    parts = [_dequantized(inputs[first:first + 3]) for first in range(2, len(inputs), 3)]
    return _quantized(context, concat(context, parts), inputs[0], inputs[1])


@HANDLERS.handles("QLinearAveragePool", domains=[MICROSOFT], conditions=_PLAIN)
def qlinear_average_pool(context: Context, inputs: Inputs) -> Value:
    if context.node.attributes.get("channels_last"):
        raise NodeError("channels_last is not supported; export the model with channels first", code="unsupported-form",
                        attribute="channels_last")
    result = average_pool(context, [_dequantized(inputs[:3])])
    return _quantized(context, result, inputs[3], at(inputs, 4))


@HANDLERS.handles("QLinearGlobalAveragePool", domains=[MICROSOFT], conditions=_PLAIN)
def qlinear_global_average_pool(context: Context, inputs: Inputs) -> Value:
    x = context.activation(_dequantized(inputs[:3]))
    first = 1 if context.node.attributes.get("channels_last") else 2
    over = range(first, first + x.order.ndim - 2)
    return _quantized(context, over_pixels(context, x, over, keep=True, mean=True), inputs[3], at(inputs, 4))


@HANDLERS.handles("QLinearSoftmax", domains=[MICROSOFT], place=Place.EDGES, conditions=_PLAIN)
def qlinear_softmax(context: Context, inputs: Inputs) -> Value:
    opset = int(context.node.attributes.get("opset", context.opset))
    result = softmax_of(context, _dequantized(inputs[:3]), opset)
    return _quantized(context, result, inputs[3], at(inputs, 4))
