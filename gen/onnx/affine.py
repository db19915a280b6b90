"""Sums, and constants behind a layer: BatchNormalization, Mul, Div, Add, Sub and Neg become its scale and bias."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gen.ir.graph import Pool
from gen.onnx.branches import as_convolution
from gen.onnx.handlers import Registry, at
from gen.onnx.layers import copy
from gen.onnx.model import Node
from gen.onnx.values import Constant, Pending, PendingAdd, PendingPool, QuantisedConstant, Real, Value

if TYPE_CHECKING:
    from gen.onnx.importer import Importer

__all__ = ["HANDLERS", "add", "affine", "turned_copy"]

HANDLERS = Registry()


def per_channel(importer: "Importer", node: Node, value: Pending | PendingPool, constant: np.ndarray) -> np.ndarray:
    """A constant operand as one number for each channel of a layer's result."""
    spread = np.broadcast_to(constant.astype(np.float64), value.order.shape)
    numbers = np.empty(value.order.size)
    numbers[value.order.ravel()] = spread.ravel()
    channels = numbers.reshape(value.shape[0], -1)
    if not (channels == channels[:, :1]).all():
        importer.fail(node, "the constant must be one number for each channel")
    return channels[:, 0]


def turned(importer: "Importer", value: Pending, turn: np.ndarray) -> Pending:
    """``value`` with its sums times ``turn`` (C,) of -1, 0 and 1, by its weights; a pool gets some for that."""
    value = as_convolution(importer, value) if value.layer is Pool else value
    column = turn[:, None, None, None].astype(np.int16)
    arguments = {**value.arguments, "weights": value.arguments["weights"] * column}
    return replace(value, arguments=arguments, offset=value.offset * turn)


def turned_copy(importer: "Importer", node: Node, source: Real, turn: np.ndarray | int = 1) -> Pending:
    """``source`` times ``turn`` (1 or -1 for each channel)."""
    copied = copy(importer, node, source)
    return replace(turned(importer, copied, np.broadcast_to(turn, copied.shape[:1])), nodes=())


def scaled(importer: "Importer", node: Node, value: Pending | PendingPool, factor: np.ndarray,
           shift: np.ndarray) -> Pending | PendingPool:
    """``value * factor + shift``, both (C,).

    Scales stay positive: a negative factor turns the channel's weights, one of zero leaves none.
    """
    if np.isfinite([value.low, value.high]).any():
        importer.fail(node, f"scales or shifts behind an activation function of {value.name}, which is not quantised")
    if isinstance(value, PendingPool):
        return replace(value, factor=value.factor * factor, shift=value.shift * factor + shift,
                       nodes=(*value.nodes, node.name))
    turn = np.sign(factor).astype(np.int64)
    if (turn != 1).any():
        value = turned(importer, value, turn)
    scale = value.scale * np.where(turn == 0, 1, np.abs(factor))
    return replace(value, scale=scale, bias=value.bias * factor + shift, nodes=(*value.nodes, node.name))


def affine(importer: "Importer", node: Node, value: Value | None, factor: np.ndarray, shift: np.ndarray, *,
           always: bool = False) -> Value:
    """``value * factor + shift`` with constants that can be broadcast to its shape; ``always`` as a layer's result."""
    if not (np.isfinite(factor).all() and np.isfinite(shift).all()):
        importer.fail(node, "its constants must be finite")
    if isinstance(value, Real):
        if not always and factor.size == 1 and factor.item() > 0 and not shift.any():
            return replace(value, scale=value.scale * factor.item())
        real = importer.activation(node, value)
        value = replace(copy(importer, node, real), nodes=())
    if not isinstance(value, Pending | PendingPool):
        importer.refuse(node, value, "its input")
    return scaled(importer, node, value, per_channel(importer, node, value, factor),
                  per_channel(importer, node, value, shift))


@HANDLERS.handles("Mul", "Div", "Sub")
def arithmetic(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    constants = [isinstance(v, Constant | QuantisedConstant) for v in inputs]
    if all(constants):
        a, b = (importer.constant(node, v, "the operand") for v in inputs)
        return Constant({"Mul": np.multiply, "Div": np.divide, "Sub": np.subtract}[node.op](a, b))
    if not any(constants):
        importer.fail(node, "has two activations as its operands; the machine adds tensors, and no more")
    first = constants.index(False)
    number = importer.constant(node, inputs[1 - first], "the operand").astype(np.float64)
    one, zero = np.ones(1), np.zeros(1)
    match node.op:
        case "Mul":
            return affine(importer, node, inputs[first], number, zero)
        case "Div" if first == 0:
            with np.errstate(divide="ignore"):  # `affine` refuses what is not finite
                inverse = 1 / number
            return affine(importer, node, inputs[0], inverse, zero)
        case "Sub":
            return affine(importer, node, inputs[first], one if first == 0 else -one, -number if first == 0 else number)
    importer.fail(node, "divides a constant by an activation")


@HANDLERS.handles("Add")
def add(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    values = list(inputs)
    constants = [v for v in values if isinstance(v, Constant | QuantisedConstant)]
    others = [v for v in values if isinstance(v, Pending | PendingPool | Real)]
    if len(constants) == 1 and len(others) == 1:
        number = importer.constant(node, constants[0], "the bias")
        return affine(importer, node, others[0], np.ones(1), number)
    if sorted(type(v).__name__ for v in values) == ["Pending", "Real"]:
        return _add_to_result(importer, node, *values)
    a, b = (importer.activation(node, v, f"operand {node.inputs[i]}") for i, v in enumerate(values))
    shapes = [importer.tensors[v.quantised.tensor].shape for v in (a, b)]
    if shapes[0] != shapes[1] or not np.array_equal(a.order, b.order):
        importer.fail(node, f"operands of shapes {a.order.shape} and {b.order.shape} are not arranged alike; "
                            "the machine adds tensors of one shape")
    return PendingAdd(name=node.name, nodes=(node.name,), order=a.order, a=a, b=b)


def _add_to_result(importer: "Importer", node: Node, a: Value | None, b: Value | None) -> PendingAdd:
    """A tensor added to a layer's unquantised result."""
    result, other = (a, b) if isinstance(a, Pending) else (b, a)
    assert isinstance(result, Pending)
    real = importer.activation(node, other)
    tensor = importer.tensors[real.quantised.tensor]
    if result.shape != tensor.shape or not np.array_equal(result.order, real.order):
        importer.fail(node, f"operands of shapes {result.order.shape} and {real.order.shape} are not arranged alike; "
                            "the machine adds tensors of one shape")
    return PendingAdd(name=node.name, nodes=(node.name,), order=result.order, a=result, b=real)


@HANDLERS.handles("Neg")
def negate(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    return affine(importer, node, inputs[0], -np.ones(1), np.zeros(1))


@HANDLERS.handles("BatchNormalization")
def batch_normalization(importer: "Importer", node: Node, inputs: Sequence[Value | None]) -> Value:
    if node.attributes.get("training_mode") or len([n for n in node.outputs if n]) > 1:
        importer.fail(node, "is in training mode; export the model for inference")
    gamma, beta, mean, variance = (
        importer.constant(node, at(inputs, i), "a parameter").astype(np.float64) for i in range(1, 5))
    with np.errstate(divide="ignore", invalid="ignore"):    # `affine` refuses what is not finite
        factor = gamma / np.sqrt(variance + float(node.attributes.get("epsilon", 1e-5)))
        shift = beta - mean * factor
    value = inputs[0]
    if not isinstance(value, Pending | PendingPool | Real):
        importer.refuse(node, value, "its input")
    column = (-1,) + (1,) * (value.order.ndim - 2)
    return affine(importer, node, value, factor.reshape(column), shift.reshape(column))
