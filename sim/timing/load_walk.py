"""Time of the walk that counts a load's pixels, padding among them."""

import numpy as np

from cores.timing.load import PaddedWalkTiming

from .fifo import NEVER

__all__ = ["Walk"]


class Walk:
    """`PaddedWalk`, which counts pixels ahead of their data: when it may take a box, and when its pixels are there."""

    def __init__(self) -> None:
        #: When the box at hand is in its last row, and when its last pixel is counted.
        self._last_row = self._ended = NEVER
        self._begun = NEVER
        #: When pixels met their data: the last ones before the box at hand, and its own.
        self._met = np.full(PaddedWalkTiming.AHEAD, NEVER)

    def take(self, time: int) -> int:
        """A box that is there at ``time``: the cycle in which it is taken."""
        taken = max(time, self._last_row)
        self._begun = max(taken + 1, self._ended)
        return taken

    @property
    def first(self) -> int:
        """First cycle in which the box's first pixel may meet its data."""
        return max(self._begun + 1, int(self._met[0]) + 1) + 1

    def meet(self, times: np.ndarray) -> None:
        """The next pixels of the box at hand."""
        self._met = np.concatenate([self._met, times])

    def end(self, row: int) -> None:
        """All of them have met; its last row had ``row`` pixels."""
        count = len(self._met) - PaddedWalkTiming.AHEAD

        def counted(pixel: int) -> int:
            return max(self._begun + 1 + pixel, int(self._met[pixel]) + 1)
        self._last_row = 1 + (counted(count - row - 1) if count > row else self._begun)
        self._ended = counted(count - 1)
        self._met = self._met[-PaddedWalkTiming.AHEAD:]
