"""Sums and differences: of two tensors, and of a tensor and a constant."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gen.onnx.broadcast import in_order_of, paired, unlike
from gen.onnx.channels import chosen
from gen.onnx.constants import constant
from gen.onnx.context import Context
from gen.onnx.handlers.affine import affine, negated, turned_copy
from gen.onnx.maps import constant_like, has_map, minus
from gen.onnx.model import NodeError
from gen.onnx.quantise import padded_heads, settled
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Registry
from gen.onnx.values import (
    Constant,
    Pending,
    PendingAdd,
    PendingPool,
    PendingTable,
    Quantisation,
    QuantisedConstant,
    Real,
    Value,
)

__all__ = ["HANDLERS", "added"]

HANDLERS = Registry()

Operand = Real | Pending | PendingTable


@HANDLERS.handles("Add", conditions=(
    "of two tensors of one shape in the layer that makes one of them, else a copy that adds; of a tensor and one "
    "number for all channels of each pixel as a 1x1 convolution that repeats that, too; with `--features product`, of "
    "a tensor and one number for each channel that the model computes; of a constant for each channel in the bias of "
    "the layer in front of it, else a depthwise layer; of one for each pixel, as a position embedding, as of a tensor "
    "that is data of the program"))
def add(context: Context, inputs: Inputs) -> Value:
    return added(context, inputs, context.node.inputs)


def added(context: Context, inputs: Inputs, names: Sequence[str]) -> Value:
    """The sum of two values, of which one may be a constant; ``names``: of them in the model."""
    values = list(inputs)
    constants = [v for v in values if isinstance(v, Constant | QuantisedConstant)]
    others = [v for v in values if isinstance(v, Pending | PendingPool | Real)]
    if len(constants) == 1 and len(others) == 1:
        operands = _with_map(context, others[0], constants[0])
        if not operands:
            return affine(context, others[0], np.ones(1), constant(constants[0], "the bias"))
        return _sum(context, *operands)
    return _sum(context, *_operands(context, inputs, names))


def _with_map(context: Context, value: Value | None, number: Constant | QuantisedConstant) -> list[Operand]:
    """A value and a constant, as operands, if the constant differs from pixel to pixel of it; else none."""
    if isinstance(value, Real):
        value = padded_heads(context, value) or context.activation(value)
    if isinstance(value, Pending | Real) and has_map(context, value, constant(number, "the operand")):
        return [value, constant_like(context, number, value)]
    return []


@HANDLERS.handles("Sub", conditions=(
    "as Add; the tensor that is subtracted is negated by the layer that makes it, or by a depthwise layer that adds "
    "the other one, else by one of its own"))
def subtract(context: Context, inputs: Inputs) -> Value:
    a, b = inputs
    if isinstance(a, Constant | QuantisedConstant) and isinstance(b, Constant | QuantisedConstant):
        return Constant(constant(a, "the operand") - constant(b, "the operand"))
    operands: list[Operand] = []
    if isinstance(b, Constant | QuantisedConstant):
        operands = _with_map(context, a, minus(b))
        if not operands:
            return affine(context, a, np.ones(1), -constant(b, "the operand").astype(np.float64))
        return _sum(context, *operands)
    if isinstance(a, Constant | QuantisedConstant):
        operands = _with_map(context, b, a)
        if not operands:
            return affine(context, b, -np.ones(1), constant(a, "the operand").astype(np.float64))
    subtrahend, minuend = operands or reversed(_operands(context, inputs, context.node.inputs))
    if isinstance(subtrahend, Pending) and not isinstance(minuend, Pending):
        return _sum(context, negated(context, subtrahend), minuend)
    if (isinstance(subtrahend, Real) and not isinstance(minuend, Pending)
            and _shape(context, minuend) == _shape(context, subtrahend)):
        if isinstance(minuend, Real):
            minuend, subtrahend = paired(context, minuend, subtrahend)
        return _sum(context, turned_copy(context, subtrahend, -1), minuend)
    return _sum(context, minuend, _negative(context, subtrahend))


def _operands(context: Context, inputs: Inputs, names: Sequence[str]) -> list[Operand]:
    """Two that are no constants, and not both unquantised results of layers."""
    if any(isinstance(value, PendingTable) for value in inputs) and context.functions.has(context.node, inputs):
        raise NodeError("is a function of each value of one tensor",
                        code="needs-unit", unit="table")    # one table takes less time than two
    found: list[Operand] = []
    _place(context, inputs)
    for value, name in zip(inputs, names, strict=True):
        if isinstance(value, PendingTable):
            real = context.activation(value.real)
            found.append(replace(value, real=real, order=real.order))
        elif isinstance(value, Pending) and not any(isinstance(other, Pending) for other in found):
            found.append(value)
        else:
            found.append(context.activation(value, f"operand {name}"))
    return found


def _place(context: Context, inputs: Inputs) -> None:
    """An input of the machine that is added to a tensor before anything else has read it lies as that does."""
    tensors = context.graph.tensors
    for one, other in (inputs, inputs[::-1]):
        if isinstance(one, Real) and isinstance(other, Real) and one.order.ndim == other.order.ndim == len("NHQK") and (
                one.order.shape[:-1] == (1, 1, 1) and other.order.shape[-2] > 1):
            context.graph.place_channels_last(one)      # a mask of keys
        if isinstance(one, Real) and isinstance(other, Pending):
            context.graph.place_like(one, other.order, other.shape)
        elif isinstance(one, Real) and isinstance(other, Real) and other.quantised.tensor in tensors:
            context.graph.place_like(one, other.order, tensors[other.quantised.tensor].shape)


def _shape(context: Context, value: Operand) -> tuple[int, int, int]:
    """Of the tensor that it stands for."""
    if isinstance(value, Pending):
        return value.shape
    real = value.real if isinstance(value, PendingTable) else value
    return context.graph.tensors[real.quantised.tensor].shape


def _negative(context: Context, value: Operand) -> Real:
    """A tensor of the numbers of ``value`` with the other sign, exactly: -1 - q stands for -(q - z) with -1 - z."""
    if not isinstance(value, Real):
        raise refusal(value, f"operand {context.node.inputs[1]}")
    kept = Quantisation(value.scale, -1 - value.zero_point, False)
    made = settled(context, replace(turned_copy(context, value, -1), name=f"{context.node.name}/negative"), kept)
    return Real(made, kept.scale, kept.zero_point)


def _sum(context: Context, a: Operand, b: Operand) -> PendingAdd:
    if isinstance(a, Real) and isinstance(b, Real):
        a, b = paired(context, a, b)
    else:
        if isinstance(b, Pending):
            a, b = b, a
        if isinstance(b, Real) and not np.array_equal(a.order, b.order):
            b = chosen(context.graph, b)        # perhaps their channels alone are in different orders
        if isinstance(b, Real) and not np.array_equal(a.order, b.order):
            b = in_order_of(context, b, a.order, _shape(context, a)) or b
        if _shape(context, a) != _shape(context, b) or not np.array_equal(a.order, b.order):
            raise unlike(a, b)
    assert not isinstance(b, Pending)
    name = context.node.name
    return PendingAdd(name=name, nodes=(name,), order=a.order, a=a, b=b, moved_by=a.moved_by)
