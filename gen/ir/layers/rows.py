"""Softmax and normalisations over the channels of each pixel."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np

from gen.ir.epilogue.base import Range
from gen.ir.layers.base import Layer
from gen.ir.tensor import Tensor
from sim.rows import EXPONENTIAL_PLACES, Rows, moment_step

__all__ = ["RowOp"]


@dataclass(frozen=True, eq=False, kw_only=True)
class RowOp(Layer):
    """For every pixel, what ``rows`` says is made of its channels; of each of ``heads`` by itself, whose channels
    follow each other. Channels of a head beyond those of a row have sums of 0.
    """

    rows: Rows
    heads: int = 1

    keeps_sums = False

    @property
    def op(self) -> str:    # type: ignore[override]
        return "normalise" if self.rows.moments else "softmax"

    def channels(self, source: Tensor) -> int:
        return source.shape[0]

    def problems(self, sources: Sequence[Tensor]) -> Iterator[str]:
        channels = sources[0].shape[0]
        if channels % self.heads or channels // self.heads < self.rows.channels:
            yield f"{self.heads} rows of {self.rows.channels} are not the channels of a pixel that has {channels}"

    def accumulate(self, operands: Sequence[np.ndarray], zero_point: int) -> np.ndarray:
        x = operands[0]
        rows = x.reshape(*x.shape[:-3], self.heads, -1, x.shape[-2] * x.shape[-1])
        sums = np.zeros(rows.shape, np.int64)
        valid = slice(self.rows.channels)
        sums[..., valid, :] = self.rows.of(rows[..., valid, :])
        return sums.reshape(x.shape)

    @property
    def summands(self) -> int:
        return self.rows.channels

    @property
    def _largest(self) -> int:
        if self.rows.moments:
            return ceil(1.01 * sqrt(self.rows.channels) / moment_step(self.rows.channels))
        return ceil(1.01 * (1 << EXPONENTIAL_PLACES))

    def sum_range(self, operands: Sequence[Range]) -> Range:
        channels = len(operands[0][0])
        return np.full(channels, -self._largest if self.rows.moments else 0), np.full(channels, self._largest)

    def sum_distance(self, apart: Sequence[np.ndarray]) -> np.ndarray:
        """Rows of different values can be anything; of equal ones they are rounded."""
        differ = (apart[0] > 0).any(axis=-3, keepdims=True)
        return np.broadcast_to(np.where(differ, 2 * self._largest, self._largest // 256), apart[0].shape)

    @property
    def form(self) -> Hashable:
        return *super().form, self.heads    # type: ignore[misc]
