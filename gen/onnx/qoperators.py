"""Operators that carry their own scales (QLinearConv and its kin), each as dequantise, plain operator, quantise."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gen.onnx import layers as plain
from gen.onnx.affine import add
from gen.onnx.handlers import MICROSOFT, Registry, at
from gen.onnx.model import Node
from gen.onnx.operators import dequantized, softmax_of, zero_point
from gen.onnx.values import Constant, Value

if TYPE_CHECKING:
    from gen.onnx.importer import Importer

__all__ = ["HANDLERS"]

HANDLERS = Registry()


def _dequantized(importer: "Importer", node: Node, inputs: Sequence[Value | None], axis: int = 1) -> Value:
    """Three inputs, (value, scale, zero point), dequantised."""
    value, scale, point = inputs
    return dequantized(importer, node, value, scale, point, axis)


def _quantized(importer: "Importer", node: Node, value: Value, scale: Value | None, point: Value | None) -> Value:
    number, unsigned = zero_point(importer, node, point)
    return importer.quantize(node, value, importer.activation_scale(node, scale), number, unsigned)


def _integer_bias(importer: "Importer", node: Node, value: Value | None, unit: np.ndarray) -> Value | None:
    """An int32 bias counts units of the accumulator."""
    if value is None:
        return None
    bias = importer.constant(node, value, "the bias")
    if bias.dtype != np.int32 or bias.shape not in ((unit.size,), (1, unit.size)):
        importer.fail(node, f"its bias must be int32, one number for each of the {unit.size} output channels, not "
                            f"{bias.dtype} of shape {bias.shape}")
    return Constant(bias.reshape(-1) * unit)


@HANDLERS.handles("QLinearConv")
def qlinear_conv(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    x, weights = _dequantized(importer, node, inputs[:3]), _dequantized(importer, node, inputs[3:6], 0)
    scale = plain.weights_of(importer, node, weights, 0)[1]
    bias = _integer_bias(importer, node, at(inputs, 8), importer.activation(node, x).scale * scale)
    return _quantized(importer, node, plain.convolution(importer, node, [x, weights, bias]), inputs[6], inputs[7])


@HANDLERS.handles("QLinearMatMul")
def qlinear_matmul(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    a, b = _dequantized(importer, node, inputs[:3]), _dequantized(importer, node, inputs[3:6], 1)
    return _quantized(importer, node, plain.matrix_product(importer, node, [a, b]), inputs[6], inputs[7])


@HANDLERS.handles("QGemm", domains=[MICROSOFT])
def qgemm(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    axis = 0 if node.attributes.get("transB") else 1
    a, b = _dequantized(importer, node, inputs[:3]), _dequantized(importer, node, inputs[3:6], axis)
    unit = importer.activation(node, a).scale * plain.weights_of(importer, node, b, axis)[1]
    bias = _integer_bias(importer, node, at(inputs, 6), unit * float(node.attributes.get("alpha", 1.0)))
    result = plain.matrix_product(importer, node, [a, b, bias])
    return result if at(inputs, 7) is None else _quantized(importer, node, result, inputs[7], at(inputs, 8))


@HANDLERS.handles("QLinearAdd", domains=[MICROSOFT])
def qlinear_add(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    a, b = _dequantized(importer, node, inputs[:3]), _dequantized(importer, node, inputs[3:6])
    return _quantized(importer, node, add(importer, node, [a, b]), inputs[6], at(inputs, 7))


@HANDLERS.handles("QLinearAveragePool", domains=[MICROSOFT])
def qlinear_average_pool(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    if node.attributes.get("channels_last"):
        importer.fail(node, "channels_last is not supported; export the model with channels first")
    result = plain.average_pool(importer, node, [_dequantized(importer, node, inputs[:3])])
    return _quantized(importer, node, result, inputs[3], at(inputs, 4))


@HANDLERS.handles("QLinearGlobalAveragePool", domains=[MICROSOFT])
def qlinear_global_average_pool(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    x = importer.activation(node, _dequantized(importer, node, inputs[:3]))
    first = 1 if node.attributes.get("channels_last") else 2
    axes = range(first, first + x.order.ndim - 2)
    return _quantized(importer, node, plain.global_average(importer, node, x, axes, True), inputs[3], at(inputs, 4))


@HANDLERS.handles("QLinearSoftmax", domains=[MICROSOFT])
def qlinear_softmax(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    opset = int(node.attributes.get("opset", importer.model.opset))
    result = softmax_of(importer, node, _dequantized(importer, node, inputs[:3]), opset)
    return _quantized(importer, node, result, inputs[3], at(inputs, 4))
