"""Time of the transformer of Winograd tiles (`cores.load.winograd`), which ends after the buffer writer."""

from cores.config import NpuConfig
from cores.timing.winograd import WinogradInputTiming, WinogradLinesTiming

from .fifo import NEVER

__all__ = ["TileTimer"]


class TileTimer:
    """The tiles of one LOAD_ACT, from pairs of rows of pixels to entries of the input buffer."""

    def __init__(self, config: NpuConfig, tile_cols: int, pairs_of_block: int) -> None:
        self._tile_cols, self._pairs_of_block = tile_cols, pairs_of_block
        self._latency = WinogradInputTiming.latency(config)
        self._pairs = 0
        #: When each pair of rows, and of columns, was used for the last time.
        self._released: list[int] = []
        self._freed: list[int] = []
        self._columns = 0
        self._columns_free = self._values_free = NEVER

    @property
    def writable(self) -> int:
        """First cycle in which a pixel of the next pair of rows may be written."""
        place = self._pairs - WinogradLinesTiming.PAIRS
        return self._released[place] + 1 if place >= 0 else NEVER

    @property
    def last(self) -> int:
        """The cycle of the last entry of all tiles so far."""
        return self._values_free - 1 + self._latency

    def complete(self, time: int) -> None:
        """The next pair of rows has its last pixel in cycle ``time``."""
        of_block = self._pairs % self._pairs_of_block
        self._pairs += 1
        if not of_block:
            return
        start = made = time + 1
        for number in range(self._tile_cols + 1):
            begin = max(start, self._columns_free)
            if self._columns >= WinogradInputTiming.PAIRS:
                begin = max(begin, self._freed[self._columns - WinogradInputTiming.PAIRS] + 1)
            made = begin + WinogradInputTiming.COLUMN_CYCLES - 1
            self._columns += 1
            self._columns_free = made + 1
            if number:
                first = max(self._values_free, made + WinogradInputTiming.COLUMN_LATENCY)
                self._values_free = first + WinogradInputTiming.TILE_CYCLES
                self._freed.append(self._values_free - 1)
        self._freed.append(self._freed[-1])
        self._released.append(made)
        if of_block == self._pairs_of_block - 1:
            self._released.append(made)
