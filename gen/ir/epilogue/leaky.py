"""A layer's result with another factor where it is negative."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cores.arch.isa import Opcode
from cores.arch.numerics import FIRST_BITS
from gen.ir.epilogue.base import Known, Setting
from gen.ir.epilogue.second_stage import SecondStage
from sim.store_operations import leaky

__all__ = ["Leaky"]


@dataclass(frozen=True, kw_only=True)
class Leaky(SecondStage):
    """What ``middle`` is above the first stage's zero point times ``multiplier``, what it is below times ``negative``.
    See `sim.store_operations.leaky`.
    """

    multiplier: int
    negative: int

    name, verb = "leaky", "scales negative values"
    opcode = Opcode.STORE_LEAKY
    cycles = 2
    wide = True
    centred = True

    @property
    def multipliers(self) -> tuple[int, ...]:
        return self.multiplier, self.negative

    def eval(self, values: np.ndarray, others: Sequence[np.ndarray], point: int) -> np.ndarray:
        return leaky(values.astype(np.int16) - point, self.multiplier, self.negative, self.shift, self.zero_point,
                     self.low, self.high)

    def distance(self, apart: np.ndarray, known: Known, setting: Setting) -> np.ndarray:
        return apart * max(self.multipliers) * self.unit

    def problems(self, setting: Setting) -> Iterator[str]:
        yield from super().problems(setting)
        first, limit = setting.first, 1 << FIRST_BITS - 1
        if not -limit <= first.low - first.zero_point <= first.high - first.zero_point < limit:
            yield f"what its first stage makes less that stage's zero point must be within {-limit}..{limit - 1}"

    def encode(self, *, broadcast: bool) -> dict[str, int]:
        return {**super().encode(broadcast=broadcast), "multiplier": self.multiplier, "negative": self.negative}
