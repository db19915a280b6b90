"""FIFOs between processes that run ahead of each other in time."""

import numpy as np

__all__ = ["NEVER", "TimedFifo", "earliest", "earliest_around"]

#: Before every cycle.
NEVER = -1 << 60


def earliest(allowed: np.ndarray, pace: int = 1) -> np.ndarray:
    """When a series of events happens that are ``pace`` cycles apart at least, none before it is ``allowed``."""
    steps = np.arange(0, pace * len(allowed), pace)
    times = allowed - steps
    np.maximum.accumulate(times, out=times)
    times += steps
    return times


def earliest_around(others: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """`earliest`, one a cycle but none in the cycles ``others``, which are rising."""
    if not len(others):
        return earliest(allowed)
    # Reckoned in cycles that are left.
    turns = earliest(allowed - others.searchsorted(allowed))
    return turns + (others - np.arange(len(others))).searchsorted(turns, side="right")


class TimedFifo:
    """``depth`` places, each with the cycle it was last filled or freed.

    Producer and consumer are simulated in turns, each as far as the other's times are known: the producer up to
    ``room`` entries ahead, the consumer through the ``available`` ones. Times are rising in each direction.
    """

    def __init__(self, depth: int, latency: int, *, remembered: int = 0) -> None:
        """``remembered``: entries of which the times are kept, if more than ``depth``."""
        self._depth, self._latency, self._size = depth, latency, max(depth, remembered)
        self._filled = np.full(self._size, NEVER)
        self._freed = np.full(self._size, NEVER)
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
    def depth(self) -> int:
        return self._depth

    @property
    def full(self) -> bool:
        return self.available == self._depth

    def _some(self, times: np.ndarray, first: int, count: int) -> np.ndarray:
        """``count`` entries from ``first`` on, of those that go round and round; not to be written to."""
        place = first % self._size
        if place + count <= self._size:
            return times[place:place + count]
        return np.concatenate([times[place:], times[:place + count - self._size]])

    def _note(self, times: np.ndarray, first: int, values: np.ndarray) -> None:
        place = first % self._size
        head = self._size - place
        times[place:place + len(values)] = values[:head]
        if len(values) > head:
            times[:len(values) - head] = values[head:]

    def writable(self, count: int) -> np.ndarray:
        """First cycles in which each of the next ``count`` entries may be pushed; ``count`` is at most ``room``."""
        return self._some(self._freed, self.pushed - self._depth, count) + 1

    def push(self, times: np.ndarray) -> None:
        self._note(self._filled, self.pushed, times)
        self.pushed += len(times)

    def readable(self, count: int) -> np.ndarray:
        """First cycles in which each of the oldest ``count`` may be taken; ``count`` is at most ``available``."""
        return self._some(self._filled, self.popped, count) + self._latency

    def pop(self, times: np.ndarray) -> None:
        self._note(self._freed, self.popped, times)
        self.popped += len(times)

    def taken(self, number: int) -> int:
        """When the entry was taken that is ``number``, less than ``depth``, in front of the last one taken."""
        return int(self._freed[(self.popped - 1 - number) % self._size])

    def filled(self, number: int) -> int:
        """First cycle in which entry ``number`` of all that there have been may be taken; times are kept of the last
        ones."""
        return int(self._filled[number % self._size]) + self._latency

    def freed(self, number: int) -> int:
        """When entry ``number`` of all that there have been was taken."""
        return int(self._freed[number % self._size])

    # The same of single entries.

    def next_writable(self) -> int:
        return int(self._freed[(self.pushed - self._depth) % self._size]) + 1

    def push_one(self, time: int) -> None:
        self._filled[self.pushed % self._size] = time
        self.pushed += 1

    def next_readable(self, number: int = 0) -> int:
        """First cycle in which the entry after the ``number`` oldest may be taken."""
        return int(self._filled[(self.popped + number) % self._size]) + self._latency

    def pop_one(self, time: int) -> None:
        self._freed[self.popped % self._size] = time
        self.popped += 1
