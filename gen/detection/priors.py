"""Boxes that a map's places begin from."""

from collections.abc import Sequence

import numpy as np

__all__ = ["VARIANCES", "grid", "priors"]

#: What SSD multiplies offsets of centres and logarithms of sizes by.
VARIANCES = (0.1, 0.2)


def grid(height: int, width: int) -> np.ndarray:
    """(height, width, 2) float32: x and y of the cells of a map, from 0."""
    return np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1).astype(np.float32)


def priors(sizes: Sequence[tuple[float, float]], height: int, width: int) -> np.ndarray:
    """(height * width * sizes, 4) float32: centres and sizes, as shares of the picture."""
    centres = (grid(height, width) + 0.5) / np.array([width, height], np.float32)
    shape = (height, width, len(sizes), 2)
    parts = np.broadcast_to(centres[:, :, None], shape), np.broadcast_to(np.array(sizes, np.float32), shape)
    return np.concatenate(parts, axis=-1).reshape(-1, 4)
