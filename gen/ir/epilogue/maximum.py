"""The largest of each 2x2 values: a pooling layer that goes into the store before it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cores.arch.isa import Opcode
from cores.arch.numerics import MAXIMUM_SIDE
from gen.ir.epilogue.base import Known, Range, Setting, StoreOp
from sim.store_operations import maxima

__all__ = ["Maximum"]


@dataclass(frozen=True)
class Maximum(StoreOp):
    """The largest of each 2x2 values, without a last odd row or column. See `sim.store_operations.maxima`."""

    name, verb = "maximum", "takes maxima"
    opcode = Opcode.STORE_MAXIMUM
    keeps_values = True
    refusal = "takes maxima of 2x2 as it stores, which this machine does not; --features maximum has it do so"

    @property
    def windows(self) -> tuple[int, int]:
        return MAXIMUM_SIDE, MAXIMUM_SIDE

    def eval(self, values: np.ndarray, others: Sequence[np.ndarray], point: int) -> np.ndarray:
        return maxima(values)

    def value_range(self, values: Range, others: Sequence[Range], point: int) -> Range:
        return values

    def distance(self, apart: np.ndarray, known: Known, setting: Setting) -> np.ndarray:
        return maxima(apart) if apart.ndim else apart

    def encode(self, *, broadcast: bool) -> dict[str, int]:
        return {"row_words": 0}

    def problems(self, setting: Setting) -> Iterator[str]:
        if setting.repeats != (1, 1):
            yield "it upsamples and takes maxima; a store does one of both"
