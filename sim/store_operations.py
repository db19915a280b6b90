"""What operations of a store's chain do to activations: their arithmetic, and how instructions set it.

The compiler's operations (`gen.ir.epilogue`) take the arithmetic from here; the functional simulator applies
`OPERATIONS`. STORE_SIGNS is none of them: it is a form in memory.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode
from cores.arch.numerics import MAXIMUM_SIDE, TABLE_BYTES

from .golden import round_shift
from .table import unpack_table

__all__ = ["LOADS", "OPERATIONS", "Load", "leaky", "look_up", "maxima", "product", "residual_add"]


def residual_add(a: ArrayLike, b: ArrayLike, multiplier_a: int, multiplier_b: int, constant: int, shift: int,
                 zero_point: int, low: int, high: int) -> np.ndarray:
    """Second stage of a store: two integers at different scales -> int8. ``constant`` carries both zero points.

    ``a`` is the first stage's result, of FIRST_BITS; ``b`` int8.
    """
    total = np.asarray(a, np.int64) * multiplier_a + np.asarray(b, np.int64) * multiplier_b + constant
    return np.clip(round_shift(total, shift) + zero_point, low, high).astype(np.int8)


def leaky(a: ArrayLike, multiplier_a: int, multiplier_b: int, shift: int, zero_point: int, low: int, high: int
          ) -> np.ndarray:
    """Second stage of a store: integers times one factor, or another where they are negative -> int8.

    ``a``: the first stage's result less its zero point, of FIRST_BITS.
    """
    a = np.asarray(a, np.int64)
    total = a * np.where(a < 0, multiplier_b, multiplier_a)
    return np.clip(round_shift(total, shift) + zero_point, low, high).astype(np.int8)


def product(a: ArrayLike, b: ArrayLike, multiplier: int, constant: int, shift: int, zero_point: int, low: int, high: int
            ) -> np.ndarray:
    """Second stage of a store: a product of two integers -> int8. ``constant``: the zero point of ``b`` times
    ``multiplier``.

    ``a``: the first stage's result less its zero point, of FIRST_BITS; ``b`` int8, of the same shape, or (..., C, 1, 1)
    for all pixels.
    """
    factor = np.asarray(b, np.int64) * multiplier - constant
    return np.clip(round_shift(np.asarray(a, np.int64) * factor, shift) + zero_point, low, high).astype(np.int8)


def look_up(values: ArrayLike, table: np.ndarray) -> np.ndarray:
    """What becomes of int8 ``values``, of any shape; ``table`` int8 (256,), of -128 first."""
    return table[np.asarray(values, np.int64) + TABLE_BYTES // 2]


def maxima(values: ArrayLike) -> np.ndarray:
    """The largest of each 2x2 of ``values`` (..., H, W); a last odd row or column is left out."""
    values = np.asarray(values)
    rows, cols = (size // MAXIMUM_SIDE for size in values.shape[-2:])
    windows = values[..., :rows * MAXIMUM_SIDE, :cols * MAXIMUM_SIDE].reshape(
        *values.shape[:-2], rows, MAXIMUM_SIDE, cols, MAXIMUM_SIDE)
    return np.asarray(windows.max(axis=(-3, -1)))


def _last(stage: Instruction) -> tuple[int, int, int, int]:
    """What every second stage has. A shift of 0 has no meaning; the arithmetic still needs one it can compute."""
    return max(stage["shift"], 1), stage["zero_point"], stage["low"], stage["high"]


@dataclass(frozen=True)
class Load:
    """What an operation takes from the side ring with ``load``: so many bytes, and what they are."""

    size: int
    unpack: Callable[[np.ndarray], Any]


#: Of operations that load.
LOADS: Mapping[Opcode, Load] = {Opcode.STORE_TABLE: Load(TABLE_BYTES, unpack_table)}

#: Opcode -> the result of values, int (channels, rows, columns): of its instruction, the values, what the store reads
#: beside them (int8, that broadcasts to them; or None) and what the operation has loaded (or None).
OPERATIONS: Mapping[Opcode, Callable[[Instruction, np.ndarray, Any, Any], np.ndarray]] = {
    Opcode.STORE_ADD: lambda stage, values, other, loaded: residual_add(
        values, other, stage["multiplier_a"], stage["multiplier_b"], stage["constant"], *_last(stage)),
    Opcode.STORE_MULTIPLY: lambda stage, values, other, loaded: product(
        values, other, stage["multiplier"], stage["constant"], *_last(stage)),
    Opcode.STORE_LEAKY: lambda stage, values, other, loaded: leaky(
        values, stage["multiplier"], stage["negative"], *_last(stage)),
    Opcode.STORE_TABLE: lambda stage, values, other, loaded: look_up(values.astype(np.int8), loaded),
    Opcode.STORE_MAXIMUM: lambda stage, values, other, loaded: maxima(values),
}
