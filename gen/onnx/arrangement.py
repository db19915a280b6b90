"""Arrangements of values in ONNX's order of axes (see `gen.onnx.values`)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from gen.ir.graph import MAX_VALUES
from gen.onnx.model import Node, NodeError
from gen.onnx.refusals import refusal
from gen.onnx.values import (
    Host,
    PendingPool,
    PendingRows,
    PendingTable,
    Quantised,
    QuantisedConstant,
    RawInput,
    Real,
    Unquantised,
    Value,
    layout_steps,
)

__all__ = ["HEAD_BLOCK", "VALUE_BLOCK", "moved", "of_samples", "possible", "rearranged", "result_order"]

#: Channels that a head begins at a multiple of: whole blocks of every machine; and where no rows of its channels
#: follow, of most machines, so that there are fewer channels between heads.
HEAD_BLOCK, VALUE_BLOCK = 32, 16


def result_order(dims: tuple[int, int, int], rank: int) -> np.ndarray:
    """The order of a layer's own result in ONNX shape. Raises NodeError for one that is too large."""
    if prod(dims) > MAX_VALUES:
        raise NodeError(f"makes {prod(dims):,} values, at most {MAX_VALUES:,} are supported",
                        code="too-large", limit=MAX_VALUES)
    spatial = {2: (), 3: dims[2:], 4: dims[1:]}[rank]
    return np.arange(prod(dims)).reshape(1, dims[0], *spatial)


def moved(value: Real, axes: Sequence[int], to: Sequence[int]) -> Real:
    """``value`` with axes of its arrangement moved, so that channels come first when it becomes a tensor."""
    return replace(value, quantised=replace(value.quantised, order=np.moveaxis(value.order, axes, to)))


def rearranged(node: Node, value: Value | None, change: Callable[[np.ndarray], np.ndarray]) -> Value:
    """``value`` with its elements in the arrangement that ``change`` makes of an array of its shape."""
    match value:
        case Real():
            return replace(value, quantised=replace(value.quantised, order=change(value.order), moved_by=node.name))
        case Quantised():
            return replace(value, order=change(value.order), moved_by=node.name)
        case RawInput():
            return replace(value, order=change(value.order))
        case Unquantised() if not isinstance(value, PendingTable | PendingPool):
            return replace(value, order=change(value.order), nodes=(*value.nodes, node.name), moved_by=node.name)
        case QuantisedConstant() if value.scale.size == value.zero_point.size == 1:
            return replace(value, array=change(value.array))
        case Host():
            after = of_samples(change(value.order))
            steps = (*value.steps, *layout_steps(value.order.shape[1:], after))
            layer = None if value.layer is None else rearranged(node, value.layer, change)
            assert layer is None or isinstance(layer, PendingRows)
            return replace(value, steps=steps, order=np.arange(after.size).reshape(after.shape), layer=layer)
    raise refusal(value, "its input")


def possible(order: np.ndarray) -> np.ndarray:
    """``order`` as it is. Raises NodeError for one without elements, or without axes."""
    if not order.size:
        raise NodeError("leaves nothing of its input", code="bad-shape")
    if not order.ndim:
        raise NodeError("makes a number without axes of one sample, where a layer has channels", code="bad-shape")
    return order


def of_samples(order: np.ndarray) -> np.ndarray:
    """``order`` as it is, of a value that leaves the machine. Raises NodeError unless its first axis is that of the one
    sample.
    """
    if order.shape[:1] != (1,):
        raise NodeError(f"makes shape {order.shape} of one sample; the first axis must stay that of the samples",
                        code="samples-axis")
    return order
