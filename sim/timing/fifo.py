"""FIFOs between processes that run ahead of each other in time."""

import numpy as np

__all__ = ["NEVER", "TimedFifo", "earliest"]

#: Before every cycle.
NEVER = -1 << 60


def earliest(allowed: np.ndarray, pace: int = 1) -> np.ndarray:
    """When a series of events happens that are ``pace`` cycles apart at least, none before it is ``allowed``."""
    steps = pace * np.arange(len(allowed))
    return np.maximum.accumulate(allowed - steps) + steps


class TimedFifo:
    """``depth`` places, each with the cycle it was last filled or freed.

    Producer and consumer are simulated in turns, each as far as the other's times are known: the producer up to
    ``room`` entries ahead, the consumer through the ``available`` ones. Times are rising in each direction.
    """

    def __init__(self, depth: int, latency: int) -> None:
        self._depth, self._latency = depth, latency
        self._filled = np.full(depth, NEVER)
        self._freed = np.full(depth, NEVER)
        self.pushed = self.popped = 0

    @property
    def room(self) -> int:
        """Entries whose push can be timed now."""
        return self._depth - self.available

    @property
    def available(self) -> int:
        """Entries whose pop can be timed now."""
        return self.pushed - self.popped

    @property
    def full(self) -> bool:
        return self.available == self._depth

    def _places(self, first: int, count: int) -> np.ndarray:
        return np.arange(first, first + count) % self._depth

    def writable(self, count: int) -> np.ndarray:
        """First cycles in which each of the next ``count`` entries may be pushed; ``count`` is at most ``room``."""
        return self._freed[self._places(self.pushed, count)] + 1

    def push(self, times: np.ndarray | list[int]) -> None:
        self._filled[self._places(self.pushed, len(times))] = times
        self.pushed += len(times)

    def readable(self, count: int) -> np.ndarray:
        """First cycles in which each of the oldest ``count`` may be taken; ``count`` is at most ``available``."""
        return self._filled[self._places(self.popped, count)] + self._latency

    def pop(self, times: np.ndarray | list[int]) -> None:
        self._freed[self._places(self.popped, len(times))] = times
        self.popped += len(times)
