"""Pixels in another order, or some of them."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gen.ir.epilogue.base import Range
from gen.ir.layers.base import Layer
from gen.ir.tensor import Tensor

__all__ = ["Move"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Move(Layer):
    """Pixel i of the result, which has ``shape`` rows and columns of them, is pixel ``places[i]`` of the input, in all
    channels alike; ``places`` is int64 (pixels,), and may have one several times.
    """

    places: np.ndarray
    shape: tuple[int, int]

    op = "move"
    summands = 1
    keeps_sums = False

    def channels(self, source: Tensor) -> int:
        return source.shape[0]

    def size(self, source: Tensor) -> tuple[int, int]:
        return self.shape

    def problems(self, sources: Sequence[Tensor]) -> Iterator[str]:
        _, height, width = sources[0].shape
        if self.places.dtype != np.int64 or self.places.shape != (self.shape[0] * self.shape[1],):
            yield f"moves {self.places.dtype} {self.places.shape} pixels to {self.shape}"
        elif not (0 <= self.places.min() and self.places.max() < height * width):
            yield f"moves pixels {self.places.min()} to {self.places.max()} of {height * width}"

    def accumulate(self, operands: Sequence[np.ndarray], zero_point: int) -> np.ndarray:
        return self._moved(operands[0]).astype(np.int64)

    def sum_range(self, operands: Sequence[Range]) -> Range:
        return operands[0]

    def sum_distance(self, apart: Sequence[np.ndarray]) -> np.ndarray:
        return self._moved(apart[0])

    @property
    def form(self) -> Hashable:
        return *super().form, self.places.tobytes()    # type: ignore[misc]

    def _moved(self, values: np.ndarray) -> np.ndarray:
        """(..., C, H, W) -> (..., C, *shape)."""
        *before, channels, _, _ = values.shape
        return values.reshape(*before, channels, -1)[..., self.places].reshape(*before, channels, *self.shape)
