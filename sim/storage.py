"""The machine's memories as the functional simulator holds them."""

from functools import lru_cache

import numpy as np

from cores.config import NpuConfig

__all__ = ["Accumulators", "Ring", "entry_places"]


class Ring:
    """A FIFO of ``depth`` beats."""

    def __init__(self, depth: int, beat_bytes: int) -> None:
        self._beats = np.zeros((depth, beat_bytes), np.uint8)
        self._head = 0
        self.level = 0

    @property
    def room(self) -> int:
        return len(self._beats) - self.level

    def push(self, beats: np.ndarray) -> None:
        """Append uint8 (n, beat_bytes), n at most ``room``."""
        places = (self._head + self.level + np.arange(len(beats))) % len(self._beats)
        self._beats[places] = beats
        self.level += len(beats)

    def take(self, count: int) -> np.ndarray:
        """The oldest ``count`` beats, at most ``level``: uint8 (count, beat_bytes)."""
        places = (self._head + np.arange(count)) % len(self._beats)
        self._head = (self._head + count) % len(self._beats)
        self.level -= count
        return self._beats[places]


class Accumulators:
    """Two banks of ``acc_depth`` words: ``pixel_lanes`` pixels of ``oc_lanes`` sums of ``acc_width`` bits."""

    def __init__(self, config: NpuConfig) -> None:
        self._half = 1 << config.acc_width - 1
        self._lanes = config.pixel_lanes
        self.sums = np.zeros((2, config.acc_depth * config.pixel_lanes, config.oc_lanes), np.int64)

    def words(self, rows: int, cols: int) -> int:
        """Words that a tile takes in a bank: every row begins a new one."""
        return rows * -(-cols // self._lanes)

    def pixels(self, rows: int, cols: int) -> np.ndarray:
        """(rows * cols,) place of each output pixel in a bank, in order."""
        pitch = -(-cols // self._lanes) * self._lanes
        return (np.arange(rows)[:, None] * pitch + np.arange(cols)).ravel()

    def wrap(self, values: np.ndarray) -> np.ndarray:
        return (values + self._half & 2 * self._half - 1) - self._half


@lru_cache(maxsize=1024)
def entry_places(pixel_lanes: int, stride: int, first: int, count: int,
                 step: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Bank and entry (from the row's first) of padded columns ``first``, ``first + step``...: two arrays (count,)."""
    columns = first + step * np.arange(count)
    if pixel_lanes == 1:
        return np.zeros_like(columns), columns
    return columns // stride % 2, columns // (2 * stride) * stride + columns % stride
