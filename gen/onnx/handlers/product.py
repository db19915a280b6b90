"""Matrix products with constant weights."""

import numpy as np

from gen.onnx.arrangement import moved
from gen.onnx.context import Context
from gen.onnx.model import NodeError
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Registry, at
from gen.onnx.values import Pending, QuantisedConstant, Real, Value
from gen.onnx.weights import Kernel, bias_of, convolved, weights_of
from gen.onnx.windows import Windows

__all__ = ["HANDLERS", "matrix_product"]

HANDLERS = Registry()


def _product(context: Context, value: Value | None, matrix: Kernel) -> Pending:
    """A matrix product with weights (OC, F) as a convolution.

    A vector's kernel covers its tensor, whatever its arrangement; rows of channels (..., F) are pixels of a 1x1
    convolution.
    """
    if not isinstance(value, Real):
        raise refusal(value, "its input")
    before, (outputs, features) = value.order.shape, matrix.weights.shape
    if before[-1] != features:
        raise NodeError(f"weights of {features} rows on an input of shape {before}")
    name = context.node.name
    if value.order.size == features:
        real = context.activation(value)
        shape = context.graph.tensors[real.quantised.tensor].shape
        spread = np.zeros((outputs, features), np.int16)
        spread[:, real.order.ravel()] = matrix.weights
        kernel = Kernel(spread.reshape(outputs, *shape), matrix.scale, matrix.bias)
        order = np.arange(outputs).reshape(*before[:-1], outputs)
        return convolved(name, real, kernel, Windows(shape[1:], (1, 1), (0, 0, 0, 0), (1, 1)), order)
    real = context.activation(moved(value, [-1], [1]))
    channels, *size = context.graph.tensors[real.quantised.tensor].shape
    if channels != features or not np.array_equal(real.order.ravel(), np.arange(real.order.size)):
        raise NodeError("its input is neither a vector nor pixels with channels last; the machine moves no data")
    kernel = Kernel(matrix.weights.reshape(outputs, channels, 1, 1), matrix.scale, matrix.bias)
    order = np.arange(outputs * size[0] * size[1]).reshape(outputs, -1).T.reshape(*before[:-1], outputs)
    return convolved(name, real, kernel, Windows((1, 1), (1, 1), (0, 0, 0, 0), (size[0], size[1])), order)


@HANDLERS.handles("Gemm", "MatMul")
def matrix_product(context: Context, inputs: Inputs) -> Value:
    attributes = context.node.attributes
    if attributes.get("transA"):
        raise NodeError("transA is not supported")
    axis = 0 if attributes.get("transB") else 1
    matrix = inputs[1]
    if isinstance(matrix, QuantisedConstant) and matrix.array.ndim != 2:
        raise NodeError(f"its weights must be a matrix, not of shape {matrix.array.shape}")
    weights, scale = weights_of(matrix, axis)
    bias = bias_of(at(inputs, 2), weights.shape[0], broadcast=True)
    bias *= float(attributes.get("beta", 1.0))
    alpha = float(attributes.get("alpha", 1.0))
    if alpha <= 0:
        raise NodeError(f"alpha must be positive, not {alpha}")
    return _product(context, inputs[0], Kernel(weights, scale * alpha, bias))
