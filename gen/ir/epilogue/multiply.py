"""A layer's result times another tensor."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from cores.arch.isa import Opcode
from cores.arch.numerics import PRODUCT_MULTIPLIER_BITS
from gen.ir.epilogue.base import EQUAL, Known, Setting
from gen.ir.epilogue.second_stage import WithOperand
from gen.ir.tensor import Tensor
from sim.store_operations import product

__all__ = ["Multiply"]


@dataclass(frozen=True, kw_only=True)
class Multiply(WithOperand):
    """``middle``, which has the first stage's zero point, times ``other`` times ``multiplier``, of
    PRODUCT_MULTIPLIER_BITS; ``constant`` is that times the zero point of ``other``. See `sim.store_operations.product`.
    """

    multiplier: int

    name, verb = "mul", "multiplies"
    opcode = Opcode.STORE_MULTIPLY
    centred = True

    @property
    def multipliers(self) -> tuple[int, ...]:
        return (self.multiplier,)

    def eval(self, values: np.ndarray, others: Sequence[np.ndarray], point: int) -> np.ndarray:
        return product(values.astype(np.int16) - point, others[0], self.multiplier, self.constant, self.shift,
                       self.zero_point, self.low, self.high)

    def distance(self, apart: np.ndarray, known: Known, setting: Setting) -> np.ndarray:
        others, factor = known.apart(self.other), self.multiplier
        if not (factor and (apart.any() or others.any())):
            return EQUAL
        mine = np.abs(known.values(self.middle.name).astype(np.float64) - setting.first.zero_point)
        theirs = np.abs(known.values(self.other).astype(np.float64) - self.constant / factor)
        return np.asarray((mine * others + theirs * apart + apart * others) * factor * self.unit)

    def problems(self, setting: Setting) -> Iterator[str]:
        yield from super().problems(setting)
        if self.multiplier >= 1 << PRODUCT_MULTIPLIER_BITS:
            yield f"the multiplier of a product must have {PRODUCT_MULTIPLIER_BITS} bits, not {self.multiplier}"
        if self.constant != setting.tensors[self.other].zero_point * self.multiplier:
            yield "the constant of a product is not its multiplier times the zero point of what it multiplies with"
        if self.middle.zero_point != setting.first.zero_point:
            yield "its own result has another zero point than its first stage"

    def _swapped(self, source: Tensor, other: Tensor) -> Self:
        return replace(self, middle=other, other=source.name, constant=source.zero_point * self.multiplier)

    def encode(self, *, broadcast: bool) -> dict[str, int]:
        return {**super().encode(broadcast=broadcast), "multiplier": self.multiplier}
