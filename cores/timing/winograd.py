"""Of the Winograd transformer, and of the sums of its tiles."""

from ..arch.numerics import POSITIONS
from ..config import NpuConfig
from .lib import StreamBufferTiming

__all__ = ["WinogradInputTiming", "WinogradLinesTiming", "WinogradSumsTiming"]


class WinogradLinesTiming:
    """Of `WinogradLines`, cores/load/winograd/winograd_lines.py."""

    #: Cycles from a pixel until it is written, and pixels that may wait for that.
    LATENCY, AHEAD = StreamBufferTiming.LATENCY, StreamBufferTiming.DEPTH
    #: Pairs of rows: two that tiles are made of, two that the next ones are written to.
    PAIRS = 4


class WinogradInputTiming:
    """Of `WinogradInput`, cores/load/winograd/winograd_input.py."""

    #: Pairs of columns of vertical sums: two that tiles are made of, two that the next ones are written to.
    PAIRS = 4
    #: Cycles for a pair of columns of vertical sums, four each, and for the values of a tile.
    COLUMN_CYCLES, TILE_CYCLES = 8, POSITIONS
    #: From the last cycle of a pair of columns until it is complete in memory.
    COLUMN_LATENCY = 3

    @staticmethod
    def latency(config: NpuConfig) -> int:
        """Cycles from the address of a value's columns to its entry."""
        return 3 if config.winograd == 1 else 2


class WinogradSumsTiming:
    """Of `WinogradSums`, cores/store/winograd_sums.py."""

    #: Words of a pixel, each read in a cycle of its own.
    WORDS = 9
