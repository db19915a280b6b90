"""Pixels in another order, or some of them, of a tensor or of several."""

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
    channels alike; ``places`` is int64 (pixels,), and may have one several times. The pixels of the tensors ``more``
    follow those of the input, in order; all have as many channels, and stand for the same numbers.
    """

    places: np.ndarray
    shape: tuple[int, int]
    more: tuple[str, ...] = ()

    op = "move"
    summands = 1
    keeps_sums = False

    @property
    def operands(self) -> tuple[str, ...]:
        return self.input, *self.more

    def channels(self, source: Tensor) -> int:
        return source.shape[0]

    def size(self, source: Tensor) -> tuple[int, int]:
        return self.shape

    def problems(self, sources: Sequence[Tensor]) -> Iterator[str]:
        pixels = sum(source.shape[1] * source.shape[2] for source in sources)
        if self.places.dtype != np.int64 or self.places.shape != (self.shape[0] * self.shape[1],):
            yield f"moves {self.places.dtype} {self.places.shape} pixels to {self.shape}"
        elif not (0 <= self.places.min() and self.places.max() < pixels):
            yield f"moves pixels {self.places.min()} to {self.places.max()} of {pixels}"
        if len({(source.shape[0], source.scale, source.zero_point) for source in sources}) > 1:
            yield "moves pixels of tensors that differ in channels, scale or zero point"

    def accumulate(self, operands: Sequence[np.ndarray], zero_point: int) -> np.ndarray:
        return self._moved(operands).astype(np.int64)

    def sum_range(self, operands: Sequence[Range]) -> Range:
        return np.min([low for low, _ in operands], axis=0), np.max([high for _, high in operands], axis=0)

    def sum_distance(self, apart: Sequence[np.ndarray]) -> np.ndarray:
        return self._moved(apart)

    @property
    def form(self) -> Hashable:
        return *super().form, self.places.tobytes(), len(self.more)    # type: ignore[misc]

    def _moved(self, operands: Sequence[np.ndarray]) -> np.ndarray:
        """(..., C, H, W) each -> (..., C, *shape)."""
        pixels = np.concatenate([values.reshape(*values.shape[:-2], -1) for values in operands], axis=-1)
        return pixels[..., self.places].reshape(*pixels.shape[:-1], *self.shape)
