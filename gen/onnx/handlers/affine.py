"""Constants after a layer: BatchNormalization, Mul, Div and Neg become its scale and bias."""

from dataclasses import replace
from math import prod

import numpy as np

from gen.ir.epilogue.multiply import Multiply
from gen.ir.graph import Pool
from gen.ir.tensor import Tensor
from gen.onnx.broadcast import operand, paired
from gen.onnx.builder import GraphBuilder
from gen.onnx.channels import with_gaps
from gen.onnx.constants import constant
from gen.onnx.context import Context
from gen.onnx.maps import constant_like, has_map, spread
from gen.onnx.model import NodeError
from gen.onnx.pooling import copy
from gen.onnx.quant_scales import as_convolution
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Registry, at
from gen.onnx.values import (
    Constant,
    Pending,
    PendingOperation,
    PendingPool,
    Quantisation,
    QuantisedConstant,
    Real,
    Value,
)
from sim.golden import quantize_product

__all__ = ["HANDLERS", "affine", "multiply", "negated", "turned_copy"]

HANDLERS = Registry()


def _per_channel(value: Pending | PendingPool, number: np.ndarray) -> np.ndarray:
    """A constant operand as one number for each channel of a layer's result."""
    values = spread(value.order, number.astype(np.float64)).ravel()
    owners = value.order.ravel() // prod(value.shape[1:])
    numbers = np.ones(value.shape[0])       # of a channel that is cut off as a whole: any
    numbers[owners] = values
    if not (numbers[owners] == values).all():
        raise NodeError("the constant must be one number for each channel", code="operand-shapes")
    return numbers


def _turned(graph: GraphBuilder, value: Pending, turn: np.ndarray) -> Pending:
    """``value`` with its sums times ``turn`` (C,) of -1, 0 and 1, by its weights; a pool gets some for that."""
    value = as_convolution(graph, value) if value.layer is Pool else value
    column = turn[:, None, None, None].astype(np.int16)
    arguments = {**value.arguments, "weights": value.arguments["weights"] * column}
    return replace(value, arguments=arguments, offset=value.offset * turn)


def negated(context: Context, value: Pending) -> Pending:
    """A layer's result with the other sign, clip bounds and all."""
    turned = _turned(context.graph, value, np.full(value.shape[:1], -1))
    return replace(turned, bias=-value.bias, low=-value.high, high=-value.low)


def turned_copy(context: Context, source: Real, turn: np.ndarray | int = 1) -> Pending:
    """``source`` times ``turn`` (1 or -1 for each channel)."""
    copied = copy(context, source)
    return replace(_turned(context.graph, copied, np.broadcast_to(turn, copied.shape[:1])), nodes=())


def _scaled(context: Context, value: Pending | PendingPool, factor: np.ndarray,
            shift: np.ndarray) -> Pending | PendingPool:
    """``value * factor + shift``, both (C,).

    Scales stay positive: a negative factor turns the channel's weights, one of zero leaves none.
    """
    if np.isfinite([value.low, value.high]).any():
        raise NodeError(f"scales or shifts after an activation function of {value.name}, which is not quantised",
                        code="not-quantised")
    name = context.node.name
    if isinstance(value, PendingPool):
        return replace(value, factor=value.factor * factor, shift=value.shift * factor + shift,
                       nodes=(*value.nodes, name))
    turn = np.sign(factor).astype(np.int64)
    if (turn != 1).any():
        value = _turned(context.graph, value, turn)
    scale = value.scale * np.where(turn == 0, 1, np.abs(factor))
    return replace(value, scale=scale, bias=value.bias * factor + shift, nodes=(*value.nodes, name))


def affine(context: Context, value: Value | None, factor: np.ndarray, shift: np.ndarray, *,
           always: bool = False) -> Value:
    """``value * factor + shift`` with constants that can be broadcast to its shape; ``always`` as a layer's result."""
    if not (np.isfinite(factor).all() and np.isfinite(shift).all()):
        raise NodeError("its constants must be finite", code="bad-scale")
    if isinstance(value, Real):
        if not always and factor.size == 1 and factor.item() > 0 and not shift.any():
            return replace(value, scale=value.scale * factor.item())
        value = replace(copy(context, with_gaps(context.graph, value) or context.activation(value)), nodes=())
    if not isinstance(value, Pending | PendingPool):
        raise refusal(value, "its input")
    return _scaled(context, value, _per_channel(value, factor), _per_channel(value, shift))


def _product(context: Context, inputs: Inputs) -> Value:
    """Of two activations."""
    if context.functions.may_be(context.node, inputs):
        # A table takes no further time.
        raise NodeError("has two activations as its operands, which follow from one tensor",
                        code="needs-unit", unit="table")
    if not context.units.have("product"):
        raise NodeError("has two activations as its operands; --features product multiplies them on the accelerator",
                        code="needs-unit", unit="product")
    return _of_two(context, *paired(context, *(operand(context, value) for value in inputs)))


def _of_two(context: Context, a: Real, b: Real) -> PendingOperation:
    """Their product, on a machine that multiplies."""
    name = context.node.name

    def operation(middle: Tensor, result: Quantisation, bounds: tuple[int, int]) -> Multiply:
        multiplier, shift = quantize_product(middle.scale * b.scale / result.scale)
        return Multiply(middle=middle, other=b.quantised.tensor, multiplier=multiplier, shift=shift,
                        zero_point=result.internal, low=bounds[0], high=bounds[1], constant=b.zero_point * multiplier)

    return PendingOperation(name=name, nodes=(name,), order=a.order, real=a, operation=operation, moved_by=a.moved_by)


def multiply(context: Context, inputs: Inputs) -> Value:
    """The product of two inputs, of which one may be a constant."""
    value, factor = sorted(inputs, key=lambda value: isinstance(value, Constant | QuantisedConstant))
    if not isinstance(factor, Constant | QuantisedConstant):
        return _product(context, inputs)
    numbers = constant(factor, "the operand").astype(np.float64)
    if numbers.size > 1 and isinstance(value, Real):
        value = with_gaps(context.graph, value) or context.activation(value)
        if has_map(context, value, numbers):
            if not context.units.have("product"):
                raise NodeError("multiplies by a constant for each pixel; --features product does that on the "
                                "accelerator", code="needs-unit", unit="product")
            return _of_two(context, value, constant_like(context, factor, value))
    return affine(context, value, numbers, np.zeros(1))


@HANDLERS.handles("Mul", "Div", conditions=(
    "with a constant for each channel, in scale and bias of the layer in front of it, else as a depthwise layer; a "
    "constant divided by an activation by a table. Mul with `--features product` also of two tensors of one shape, or "
    "of a tensor and one number for each channel that the model computes (squeeze and excitation): in the layer that "
    "makes one of them, else a copy, three cycles of the store engine for each pixel of a block; one number for all "
    "channels of each pixel (spatial attention) is repeated first, by a 1x1 convolution; a constant with a number for "
    "each pixel is a tensor, too. Quotients of two activations are refused"))
def arithmetic(context: Context, inputs: Inputs) -> Value:
    op = context.node.op
    constants = [isinstance(v, Constant | QuantisedConstant) for v in inputs]
    if all(constants):
        a, b = (constant(v, "the operand") for v in inputs)
        return Constant({"Mul": np.multiply, "Div": np.divide}[op](a, b))
    if op == "Mul":
        return multiply(context, inputs)
    if not any(constants):
        raise NodeError("has two activations as its operands; the machine adds, subtracts and multiplies tensors, and "
                        "no more", code="two-activations")
    if constants[0]:
        raise NodeError("divides a constant by an activation", code="unsupported-form")
    with np.errstate(divide="ignore"):  # `affine` refuses what is not finite
        inverse = 1 / constant(inputs[1], "the operand").astype(np.float64)
    return affine(context, inputs[0], inverse, np.zeros(1))


@HANDLERS.handles("Neg", conditions="as Mul with -1")
def negate(context: Context, inputs: Inputs) -> Value:
    return affine(context, inputs[0], -np.ones(1), np.zeros(1))


@HANDLERS.handles("BatchNormalization", conditions="as Mul and Add with constants; not in training mode")
def batch_normalization(context: Context, inputs: Inputs) -> Value:
    node = context.node
    if node.attributes.get("training_mode") or len([n for n in node.outputs if n]) > 1:
        raise NodeError("is in training mode; export the model for inference", code="unsupported-form",
                        attribute="training_mode")
    gamma, beta, mean, variance = (constant(at(inputs, i), "a parameter").astype(np.float64) for i in range(1, 5))
    with np.errstate(divide="ignore", invalid="ignore"):    # `affine` refuses what is not finite
        factor = gamma / np.sqrt(variance + float(node.attributes.get("epsilon", 1e-5)))
        shift = beta - mean * factor
    value = inputs[0]
    if not isinstance(value, Pending | PendingPool | Real):
        raise refusal(value, "its input")
    column = (-1,) + (1,) * (value.order.ndim - 2)
    return affine(context, value, factor.reshape(column), shift.reshape(column))
