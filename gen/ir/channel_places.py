"""What belongs to the channels of a tensor where these get other places, with channels between that mean nothing."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gen.ir.epilogue.base import StoreOp
from gen.ir.epilogue.second_stage import SecondStage, WithOperand
from gen.ir.epilogue.table import Table
from gen.ir.tensor import Requantize

__all__ = ["spaced", "spaced_operation", "spaced_stage"]


def spaced_operation(op: StoreOp, names: Mapping[str, str], count: int) -> StoreOp:
    """An operation on ``count`` channels, with tensors of these ``names``."""
    if isinstance(op, WithOperand):
        op = replace(op, other=names.get(op.other, op.other))
    if isinstance(op, SecondStage | Table):
        op = replace(op, middle=replace(op.middle, shape=(count, *op.middle.shape[1:])))
    return op


def spaced(array: np.ndarray, place: np.ndarray, axis: int) -> np.ndarray:
    """``array`` with what is on an axis at ``place`` of it, int64, the last of which is the largest; the rest is 0."""
    shape = list(array.shape)
    shape[axis] = int(place[-1]) + 1
    result = np.zeros(shape, array.dtype)
    result[(slice(None),) * axis + (place,)] = array
    return result


def spaced_stage(stage: Requantize, place: np.ndarray, count: int) -> Requantize:
    """A stage that has channels of its zero point between its own."""
    shift = np.full(count, stage.shift[0])
    shift[place] = stage.shift
    return replace(stage, bias=spaced(stage.bias, place, 0), multiplier=spaced(stage.multiplier, place, 0),
                   shift=shift)
