"""What a model's training did to the numbers of a picture, to be done again."""

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["Preprocessing"]


@dataclass(frozen=True)
class Preprocessing:
    """Pixels as numbers from 0 to 1, less ``mean``, divided by ``std``: one number, or one for each channel.

    ``bgr``: blue comes first, also in ``mean`` and ``std``. Raises ValueError for numbers that are not finite, and
    deviations that are not positive.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    bgr: bool = False

    def __post_init__(self) -> None:
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, 3):
                raise ValueError(f"{name} must have one number or three, not {len(values)}")
            if not all(map(math.isfinite, values)):
                raise ValueError(f"{name} must be finite")
        if min(self.std) <= 0:
            raise ValueError("std must be positive")

    def fits(self, channels: int) -> bool:
        """Whether there are as many numbers as pictures of so many channels need."""
        return channels == 3 or (len(self.mean) == len(self.std) == 1 and not self.bgr)

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        """uint8 (height, width, channels), red first -> float32."""
        values = (pixels[..., ::-1] if self.bgr else pixels).astype(np.float32) / np.float32(255)
        mean, std = (np.array(numbers, np.float32) for numbers in (self.mean, self.std))
        return (values - mean) / std

    def __str__(self) -> str:
        """What becomes of a pixel, for people."""
        order = "BGR, " if self.bgr else ""
        if (self.mean, self.std) == ((0.0,), (1.0,)):
            return f"{order}0..1"
        mean, std = (", ".join(f"{value:g}" for value in values) for values in (self.mean, self.std))
        return f"{order}(0..1 - ({mean})) / ({std})"
