"""What the store engine does in each cycle of a STORE, for the time model."""

from collections.abc import Mapping

import numpy as np

from cores.arch.isa import Queue

from .state import Shared

__all__ = ["StoreStates"]


class StoreStates:
    """Gives the cycles of a STORE whose pixels may set out after ``go`` to the states of `StoreSequencer`.

    A pixel is at work while its words are read, with a second stage also in the cycles of its second stage. What it
    waits for is, in this order: its block's parameters, its residual, its beat of the pool unit, room after the
    requantizer, the multipliers' turn. While beats of parameters come, and for a turn, the state is ``setup``.
    """

    def __init__(self, shared: Shared, index: int, go: int, *, work: int) -> None:
        """``work``: cycles of a pixel."""
        self._shared, self._index, self._work = shared, index, work
        #: First cycle that has no state yet.
        self._next = go + 1

    def _spent(self, state: str, cycles: int) -> None:
        self._shared.spent(Queue.STORE, state, self._index, cycles)

    def parameters(self, arrived: np.ndarray, taken: np.ndarray) -> None:
        """A block's beats of parameters: when each could be taken, and when it was."""
        begin = self._next
        lacking = np.maximum(begin, np.concatenate([[begin], taken[:-1] + 1]))
        empty = int(np.maximum(0, arrived - lacking).sum())
        self._next = max(begin, int(taken[-1]) + 1)
        self._spent("wait_side", empty)
        self._spent("setup", self._next - begin - empty)

    def pixels(self, times: np.ndarray, needs: Mapping[str, np.ndarray]) -> None:
        """Pixels that set out at ``times``; ``needs``: by the state of waiting, from when on each had what it takes."""
        ends = times + self._work
        busy = int(ends[-1]) - self._next
        at = np.concatenate([[self._next], ends[:-1]])
        for state, there in [*needs.items(), ("setup", times)]:
            if (at >= times).all():
                break
            waits = np.maximum(0, np.minimum(there, times) - at)
            at, cycles = at + waits, int(waits.sum())
            busy -= cycles
            self._spent(state, cycles)
        self._spent("busy", busy)
        self._next = int(ends[-1])

    def end(self, free: int) -> None:
        """The STORE is in hand until the cycle before ``free``."""
        # Second stages that are still under way count as long as it is.
        self._spent("busy", min(0, free - self._next))
        self._spent("wait_bus", max(0, free - self._next))
