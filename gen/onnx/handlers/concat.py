"""Tensors, or parts of one, side by side."""

import numpy as np

from gen.ir.graph import MAX_VALUES
from gen.onnx.arrangement import possible, rearranged
from gen.onnx.context import Context
from gen.onnx.model import NodeError
from gen.onnx.quantise import quantize
from gen.onnx.refusals import refusal
from gen.onnx.registry import Inputs, Registry
from gen.onnx.values import PendingConcat, Quantisation, Quantised, Real, Value

__all__ = ["HANDLERS", "concat"]

HANDLERS = Registry()


@HANDLERS.handles("Concat", conditions=(
    "of the channels of several tensors no work: layers write into their part of the whole. A copy first of what has "
    "another scale than the QuantizeLinear after it, is a model input, or is part of another tensor already. "
    "[Parts](architecture.md#parts) says what becomes of parts within a block of channels"))
def concat(context: Context, inputs: Inputs) -> Value:
    parts: list[Real | Quantised] = []
    for value in inputs:
        if not isinstance(value, Real | Quantised):
            raise refusal(value, "one of its inputs")
        parts.append(value)
    if sum(value.order.size for value in parts) > MAX_VALUES:
        raise NodeError(f"makes more than {MAX_VALUES:,} values", code="too-large", limit=MAX_VALUES)
    axis = int(context.node.attributes.get("axis", 1))
    if len({_without_order(value) for value in parts}) == 1:
        order = possible(np.concatenate([value.order for value in parts], axis))
        return rearranged(context.node, parts[0], lambda _: order)
    reals = [value for value in parts if isinstance(value, Real)]
    if len(reals) == len(parts):
        return _join(context, reals, axis)
    integers = [value for value in parts if isinstance(value, Quantised)]
    if len(integers) < len(parts) or len({value.unsigned for value in integers}) > 1:
        raise NodeError("joins tensors of different types; quantise all of them as int8, or all as uint8",
                        code="value-type")
    # Integers stay what they are, whatever they stand for.
    joined = _join(context, [Real(context.graph.tensor(value, 1.0, 0), 1.0, 0) for value in integers], axis)
    unsigned = integers[0].unsigned
    return quantize(context, joined, Quantisation(1.0, 128 if unsigned else 0, unsigned))


def _join(context: Context, values: list[Real], axis: int) -> PendingConcat:
    """Tensors one after the other in memory; if they are not so in the model, as an arrangement of that."""
    parts = [context.activation(value, "one of its inputs") for value in values]
    shapes = [context.graph.tensors[part.quantised.tensor].shape for part in parts]
    if len({shape[1:] for shape in shapes}) > 1 and len({part.order.shape[2:] for part in parts}) == 1:
        raise NodeError("joins a tensor whose rows and columns lie apart, as a ConvTranspose with a stride or a "
                        "rearrangement leaves them, with another; only the processor puts them together. Resize "
                        "(nearest) with a Conv after it, in place of the ConvTranspose, stays on the accelerator",
                        code="rearranged")
    if len({shape[1:] for shape in shapes}) > 1:
        raise NodeError(f"joins tensors of shapes {', '.join(map(str, shapes))}; the machine joins channels",
                        code="operand-shapes")
    starts = np.cumsum([0, *(part.order.size for part in parts[:-1])])
    order = np.concatenate([part.order + start for part, start in zip(parts, starts, strict=True)], axis)
    return PendingConcat(name=context.node.name, nodes=(context.node.name,), order=possible(order),
                         parts=tuple(parts))


def _without_order(value: Real | Quantised) -> tuple[object, ...]:
    if isinstance(value, Real):
        return value.quantised.tensor, value.scale, value.zero_point
    return value.tensor, value.unsigned
