"""Rows and columns that are there several times: the nearest neighbour."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cores.arch.isa import Opcode, largest_field
from gen.ir.epilogue.base import Known, Range, Setting, StoreOp
from gen.ir.tensor import Requantize
from sim.golden import upsample

__all__ = ["MAX_REPEATS", "Upsample"]

#: Columns that one pixel is written to.
MAX_REPEATS = 1 + largest_field(Opcode.STORE, "repeats")


@dataclass(frozen=True)
class Upsample(StoreOp):
    """Each row and each column as often as ``factors`` say. See `sim.golden.upsample`."""

    factors: tuple[int, int]

    name, verb = "upsample", "upsamples"
    repeatable = keeps_values = True

    @property
    def repeats(self) -> tuple[int, int]:
        return self.factors

    def eval(self, values: np.ndarray, others: Sequence[np.ndarray], point: int) -> np.ndarray:
        return upsample(values, self.factors)

    def value_range(self, values: Range, others: Sequence[Range], point: int) -> Range:
        return values

    def distance(self, apart: np.ndarray, known: Known, setting: Setting) -> np.ndarray:
        return upsample(apart, self.factors) if apart.ndim else apart

    def absorb(self, after: StoreOp | Requantize, point: int) -> StoreOp | None:
        if not isinstance(after, Upsample):
            return None
        down, across = (mine * theirs for mine, theirs in zip(self.factors, after.factors, strict=True))
        return Upsample((down, across))
