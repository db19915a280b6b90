"""A layer's result plus another tensor."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from cores.arch.isa import Opcode
from gen.ir.epilogue.base import Known, Setting
from gen.ir.epilogue.second_stage import WithOperand
from gen.ir.tensor import Tensor
from sim.store_operations import residual_add

__all__ = ["Add"]


@dataclass(frozen=True, kw_only=True)
class Add(WithOperand):
    """``middle`` times ``multiplier_a`` plus ``other`` times ``multiplier_b``. See `sim.store_operations.residual_add`.

    A ``middle`` of FIRST_BITS may have any zero point, which is in the first stage's bias.
    """

    multiplier_a: int
    multiplier_b: int

    name, verb = "add", "adds"
    opcode = Opcode.STORE_ADD
    wide = True

    @property
    def multipliers(self) -> tuple[int, ...]:
        return self.multiplier_a, self.multiplier_b

    def eval(self, values: np.ndarray, others: Sequence[np.ndarray], point: int) -> np.ndarray:
        return residual_add(values, others[0], self.multiplier_a, self.multiplier_b, self.constant, self.shift,
                            self.zero_point, self.low, self.high)

    def distance(self, apart: np.ndarray, known: Known, setting: Setting) -> np.ndarray:
        return np.asarray((apart * self.multiplier_a + known.apart(self.other) * self.multiplier_b) * self.unit)

    def _swapped(self, source: Tensor, other: Tensor) -> Self:
        return replace(self, middle=other, other=source.name, multiplier_a=self.multiplier_b,
                       multiplier_b=self.multiplier_a)

    def encode(self, *, broadcast: bool) -> dict[str, int]:
        return {**super().encode(broadcast=broadcast), "multiplier_a": self.multiplier_a,
                "multiplier_b": self.multiplier_b}
