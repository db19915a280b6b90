"""Maxima and sums of windows."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from cores.arch.numerics import POOL_WIDTH
from gen.ir.epilogue.base import Range
from gen.ir.layers.base import Layer
from gen.ir.tensor import Tensor
from sim.golden import pool_accumulate

__all__ = ["Pool", "window_range"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Pool(Layer):
    """Window maximum or sum of each channel. A 1x1 sum is a copy through the requantiser."""

    maximum: bool
    kernel: tuple[int, int] = (1, 1)

    op = "pool"
    keeps_sums = False

    def channels(self, source: Tensor) -> int:
        return source.shape[0]

    def makes_signs(self, source: Tensor) -> bool:
        """The maximum of signs is one, too."""
        if not (self.maximum and source.signs):
            return super().makes_signs(source)
        stage = self.requantize
        return stage.zero_point == 0 and bool((stage.scale == 1).all()) and not stage.bias.any()

    def accumulate(self, operands: Sequence[np.ndarray], zero_point: int) -> np.ndarray:
        return pool_accumulate(operands[0], self.maximum, self.kernel, self.stride, self.pads, self.padding(zero_point))

    @property
    def summands(self) -> int:
        return prod(self.kernel)

    @property
    def copies(self) -> bool:
        return (self.kernel, self.stride, self.pads) == ((1, 1), (1, 1), (0, 0, 0, 0))

    def sum_range(self, operands: Sequence[Range]) -> Range:
        return window_range(self.maximum, self.kernel, operands[0])

    def sum_distance(self, apart: Sequence[np.ndarray]) -> np.ndarray:
        return pool_accumulate(apart[0], self.maximum, self.kernel, self.stride, self.pads, 0)

    def room_problem(self) -> tuple[str, int] | None:
        (rows, cols), largest = self.kernel, (1 << POOL_WIDTH - 1) // 128
        if self.maximum or rows * cols <= largest:
            return None
        return (f"windows of at most {largest:,} pixels can be summed, not {rows}x{cols}; average in two layers, one "
                "after the other"), largest


def window_range(maximum: bool, kernel: tuple[int, int], inputs: Range) -> Range:
    """Lowest and highest result of each channel, where the inputs are in ``inputs``."""
    taps = 1 if maximum else kernel[0] * kernel[1]
    return taps * inputs[0], taps * inputs[1]
