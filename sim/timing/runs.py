"""Time of the run gatherer: beats that enter its window, and the runs that leave it after them."""

from dataclasses import dataclass

import numpy as np

from cores.arch.instruction import Instruction
from cores.config import NpuConfig
from cores.timing.gather import ByteWindowTiming, GatheredPathTiming, RunWalkTiming

from .fifo import NEVER, earliest, earliest_around

__all__ = ["RowShape", "Runs"]

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class RowShape:
    """A row's way through the window: ``beats`` enter, ``left`` of them before the data.

    ``firsts`` and ``needs``: for every run or pair, the beat that it begins in and the last that it needs.
    """

    beats: int
    left: int
    firsts: np.ndarray
    needs: np.ndarray

    @classmethod
    def of(cls, config: NpuConfig, geometry: Instruction, gather: Instruction) -> "RowShape":
        lanes, step, outputs = config.beat_bytes, gather["step"], gather["outputs"]
        length = min(gather["length"], lanes)
        together = config.write_lanes if step <= lanes else 1
        left = max(0, -(gather["start"] // lanes))
        starts = left * lanes + gather["start"] + step * np.arange(outputs)
        lasts = np.minimum(np.arange(together - 1, outputs + together - 1, together), outputs - 1)
        needs = (starts[lasts] + length - 1) // lanes
        beats = max(left + geometry["cols"], int(needs[-1]) + 1)
        return cls(beats, left, starts[::together] // lanes, needs)


class Runs:
    """When runs set out. Those of a box may still do when the next one's beats enter.

    ``last``: when the last one set out, of the box at hand or, without one, the one before.
    """

    def __init__(self) -> None:
        self.last = NEVER
        self._last_before = NEVER       # of the box before
        self._last_row = NEVER          # when the walk has come to the last row of the box at hand
        self._first = NEVER             # when its first run may set out
        # When the last runs set out, as many as the walk is ahead of.
        self._gone = np.full(RunWalkTiming.AHEAD + 1, NEVER)
        # When those of the last pixels did, as many as there are places.
        self._pixels = np.full(ByteWindowTiming.SLOTS, NEVER)
        # Of the rows before: where each run begins, from the next row's first beat on, and when it was the next to go.
        self._begins = self._next = _NONE

    @property
    def settable(self) -> int:
        """First cycle in which an instruction may set something, or a load that has no runs may post a token."""
        return self.last + GatheredPathTiming.DRAIN_CYCLES

    def announce(self, time: int) -> int:
        """The next box, at ``time`` at the soonest: the cycle in which it is announced."""
        announced = max(time, self._last_row, self._last_before + 2)
        self._first = announced + GatheredPathTiming.BOX_CYCLES
        self._last_before, self._last_row = self.last, NEVER
        return announced

    def pixel_times(self, allowed: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """When pixels enter, which are ``allowed`` to from then on, and when their runs set out: a run each, or a pair.
        ``kept``: cycles in which none does, of beats of local stores.
        """
        inside = earliest(allowed)
        while True:
            runs = earliest_around(kept, np.maximum(inside + 1, self.last + 1))
            places = np.concatenate([self._pixels, runs])[:len(runs)] + 1
            entered = earliest(np.maximum(inside, places))
            if (entered == inside).all():
                return entered, runs
            inside = entered

    def pixels(self, runs: np.ndarray) -> None:
        """Pixels of a box have these `pixel_times`."""
        self.last = int(runs[-1])
        self._pixels = np.concatenate([self._pixels, runs])[-ByteWindowTiming.SLOTS:]
        self._begins = self._next = _NONE

    def places(self, beats: np.ndarray) -> np.ndarray:
        """Cycles before which ``beats`` of the next row cannot enter, as far as the runs before that row say."""
        begins, following = np.append(self._begins, beats[-1]), np.append(self._next, self.last + 1)
        return following[np.searchsorted(begins, beats - ByteWindowTiming.SLOTS + 1)]

    def times(self, shape: RowShape, allowed: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """When the beats of a row enter, which are ``allowed`` to from then on, and when its runs set out: not in the
        cycles ``kept``, of beats of local stores.

        Runs go as if no beat waited for a place, which they hardly do, unless stores hold them up.
        """
        begins = np.concatenate([self._begins, shape.firsts, [shape.beats]])
        places = np.searchsorted(begins, np.arange(shape.beats) - ByteWindowTiming.SLOTS + 1)
        inside = earliest(allowed)
        while True:
            runs = earliest_around(kept, np.maximum(inside[shape.needs] + 1, max(self.last + 1, self._first)))
            following = np.concatenate([self._next, [self.last + 1], runs + 1])
            entered = earliest(np.maximum(inside, following[places]))
            if not len(kept) or (entered == inside).all():
                return entered, runs
            inside = entered

    def row(self, shape: RowShape, runs: np.ndarray) -> None:
        """A row of runs has these `times`."""
        begins = np.concatenate([self._begins, shape.firsts])
        following = np.concatenate([self._next, [self.last + 1], runs[:-1] + 1])
        self._last_row = int(self._gone[0]) + 2
        self._gone = np.concatenate([self._gone, runs])[-len(self._gone):]
        self.last = int(runs[-1])
        still = begins > shape.beats - ByteWindowTiming.SLOTS
        self._begins, self._next = begins[still] - shape.beats, following[still]
