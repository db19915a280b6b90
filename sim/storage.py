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
    """Two banks of ``acc_depth`` words: ``pixel_lanes`` pixels of ``oc_lanes`` sums of ``acc_width`` bits.

    A *place* in a bank has the sums of one pixel from one group of output lanes (``ic_lanes`` of them): place
    ``(word * pixel_lanes + pixel) * oc_groups + group``.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._half, self._config = 1 << config.acc_width - 1, config
        self._lanes, self._groups = config.pixel_lanes, config.oc_groups
        self.sums = np.zeros((2, config.acc_depth * config.word_places, config.ic_lanes), np.int64)

    def words(self, rows: int, cols: int, *, spread: bool = False, alternate: bool = False) -> int:
        """Words that ``rows`` x ``cols`` output pixels take in a bank: every row, or pair of rows, begins a new one."""
        return (-(-rows // 2) if alternate else rows) * -(-cols // self._config.word_columns(spread=spread))

    def places(self, rows: int, cols: int) -> np.ndarray:
        """(rows * cols, oc_groups) places of each output pixel, in order."""
        pitch = -(-cols // self._lanes) * self._lanes
        pixels = (np.arange(rows)[:, None] * pitch + np.arange(cols)).ravel()
        return pixels[:, None] * self._groups + np.arange(self._groups)

    def spread_places(self, rows: int, cols: int) -> np.ndarray:
        """(rows * cols, 1) places of each output pixel of spread words."""
        word, rest = np.divmod(np.arange(cols), self._config.word_columns(spread=True))
        group, pixel = np.divmod(rest, self._lanes)
        words = np.arange(rows)[:, None] * self.words(1, cols, spread=True) + word
        return ((words * self._lanes + pixel) * self._groups + group).reshape(-1, 1)

    def alternate_places(self, rows: int, cols: int) -> np.ndarray:
        """(rows * cols, 1) places of each output pixel, rows in turn from either group; ``rows``: output rows."""
        pair, group = np.divmod(np.arange(rows), 2)
        pitch = -(-cols // self._lanes) * self._lanes
        return ((pair[:, None] * pitch + np.arange(cols)) * self._groups + group[:, None]).reshape(-1, 1)

    def wrap(self, values: np.ndarray) -> np.ndarray:
        return (values + self._half & 2 * self._half - 1) - self._half


@lru_cache(maxsize=1024)
def entry_places(banks: int, stride: int, first: int, count: int, step: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Bank and entry (from the row's first) of padded columns ``first``, ``first + step``...: two arrays (count,)."""
    columns = first + step * np.arange(count)
    return columns // stride % banks, columns // (banks * stride) * stride + columns % stride
