"""Matrix products with constant weights."""

from dataclasses import replace
from math import prod

import numpy as np

from gen.onnx.channels import with_gaps
from gen.onnx.context import Context
from gen.onnx.heads import activations_product
from gen.onnx.joined import moved_pixels
from gen.onnx.model import NodeError
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Registry, at
from gen.onnx.transposed import transposed
from gen.onnx.values import Constant, Pending, QuantisedConstant, Real, Value, channels_first, is_plain
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
        raise NodeError(f"weights of {features} rows on an input of shape {before}", code="operand-shapes")
    name = context.node.name
    if value.order.size == features:
        real = context.activation(value)
        shape = context.graph.tensors[real.quantised.tensor].shape
        spread = matrix.weights
        if not is_plain(real.order):
            spread = np.zeros((outputs, features), np.int16)
            spread[:, real.order.ravel()] = matrix.weights
        kernel = Kernel(spread.reshape(outputs, *shape), matrix.scale, matrix.bias)
        order = np.arange(outputs).reshape(*before[:-1], outputs)
        return convolved(name, real, kernel, Windows(shape[1:], (1, 1), (0, 0, 0, 0), (1, 1)), order)
    lying = channels_first(value.order) if len(before) > 4 or before[0] != 1 else np.moveaxis(value.order, -1, 1)
    real, weights = _laid(context, replace(value, quantised=replace(value.quantised, order=lying)), matrix.weights)
    channels, *size = context.graph.tensors[real.quantised.tensor].shape
    kernel = Kernel(weights.reshape(outputs, channels, 1, 1), matrix.scale, matrix.bias)
    order = np.arange(outputs * size[0] * size[1]).reshape(outputs, -1).T.reshape(*before[:-1], outputs)
    return convolved(name, real, kernel, Windows((1, 1), (1, 1), (0, 0, 0, 0), (size[0], size[1])), order)


def _laid(context: Context, value: Real, weights: np.ndarray) -> tuple[Real, np.ndarray]:
    """The tensor of ``value``, (1, F, ...), its pixels in order, and weights (OC, C) for all of its channels, those of
    ``weights`` (OC, F) among them. Raises NodeError for another arrangement.
    """
    if (found := _with_gaps(context, value, weights)) is not None:
        return found

    def lies(real: Real) -> bool:
        return is_plain(real.order) and context.graph.tensors[real.quantised.tensor].shape[0] == weights.shape[1]

    real = context.activation(value)
    for made in (lambda: real, lambda: moved_pixels(context.graph, real), lambda: transposed(context, real)):
        if (one := made()) is not None and lies(one):
            return one, weights
    raise NodeError("takes neither a vector nor pixels with channels last, and the machine moves whole pixels alone; "
                    "transpose the channels after the other axes", code="rearranged")


def _with_gaps(context: Context, value: Real, weights: np.ndarray) -> tuple[Real, np.ndarray] | None:
    """`_laid` where the channels of ``value`` lie between others, as heads that are padded to blocks leave them: those
    have weights of zero. Else None.
    """
    real = with_gaps(context.graph, value)
    if real is None:
        return None
    channels, *size = context.graph.tensors[real.quantised.tensor].shape
    channel, pixel = np.divmod(real.order.reshape(weights.shape[1], -1), prod(size))
    if not ((channel == channel[:, :1]).all() and (pixel == np.arange(prod(size))).all()):
        return None
    spread = np.zeros((len(weights), channels), np.int16)
    spread[:, channel[:, 0]] = weights
    return real, spread


def _matrix(value: Value | None, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """`weights_of` a matrix."""
    if isinstance(value, QuantisedConstant) and value.array.ndim != 2:
        raise NodeError(f"its weights must be a matrix, not of shape {value.array.shape}", code="operand-shapes")
    return weights_of(value, axis)


@HANDLERS.handles("Gemm", conditions=(
    "a layer of its own: of a vector, in whatever arrangement, or of pixels with channels last. Constant weights, "
    "a bias for each column; any alpha and beta, transB, no transA"))
def matrix_product(context: Context, inputs: Inputs) -> Value:
    """``alpha * a @ b + beta * c`` with constants b and c, as Gemm's attributes say."""
    attributes = context.node.attributes
    if context.node.op == "Gemm" and not isinstance(inputs[1], Constant | QuantisedConstant):
        raise NodeError("multiplies two activations; the machine has that as MatMul", code="two-activations")
    if attributes.get("transA"):
        raise NodeError("transA turns features into samples, and the machine computes one sample at a time; transpose "
                        "the weights instead (transB)", code="samples-axis")
    if not isinstance(inputs[1], Constant | QuantisedConstant):
        return activations_product(context, inputs)
    weights, scale = _matrix(inputs[1], 0 if attributes.get("transB") else 1)
    bias = bias_of(at(inputs, 2), weights.shape[0], broadcast=True) * float(attributes.get("beta", 1.0))
    alpha = float(attributes.get("alpha", 1.0))
    if not np.isfinite(alpha):
        raise NodeError(f"alpha must be finite, not {alpha}", code="bad-attribute", attribute="alpha")
    # Scales stay positive.
    turned = weights if alpha > 0 else weights * np.int16(np.sign(alpha))
    return _product(context, inputs[0], Kernel(turned, scale * abs(alpha) if alpha else scale, bias))


@HANDLERS.handles("MatMul", conditions=(
    "as Gemm; the constant matrix may also be in front, of a matrix for each sample; of one for each head `quantize` "
    "makes one in a float model. With `--features turn` or "
    "`gather` also of two activations, for each head, whose result is quantised at once; with `turn` of parts of the "
    "pixels, too, each with matrices of its own (windows, patches)"))
def product(context: Context, inputs: Inputs) -> Value:
    """Weights in front stand for their transposition after: ``W @ x`` is that of ``x.T @ W.T``."""
    if not isinstance(inputs[0], Constant | QuantisedConstant):
        return matrix_product(context, inputs)
    value = inputs[1]
    if not isinstance(value, Real):
        raise refusal(value, "its second operand")
    if value.order.ndim < 3:
        raise NodeError("multiplies constants by the samples; weights belong after them", code="samples-axis")
    weights, scale = _matrix(inputs[0], 0)
    turned = replace(value, quantised=replace(value.quantised, order=value.order.swapaxes(-1, -2)))
    result = _product(context, turned, Kernel(weights, scale, np.zeros(weights.shape[0])))
    return replace(result, order=result.order.swapaxes(-1, -2))
