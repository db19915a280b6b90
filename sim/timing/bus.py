"""The read bus: at most one beat a cycle, answers in order, shared by instruction fetch and loads."""

from bisect import bisect_right
from collections import deque

import numpy as np

from cores.bus.axi import BOUNDARY_BYTES, MAX_BURST
from cores.bus.read_engine import ReadEngine
from cores.config import NpuConfig

from .dram import PROGRAM_BASE, Dram, data_base
from .fifo import NEVER, earliest

__all__ = ["ReadBus", "burst_lengths"]


def burst_lengths(config: NpuConfig, offset: int, beats: int) -> list[int]:
    """Beats of the bursts that a run from beat ``offset`` becomes: cut at multiples of the longest burst."""
    longest = min(MAX_BURST, BOUNDARY_BYTES // config.beat_bytes)
    lengths = []
    while beats:
        lengths.append(min(beats, longest - offset % longest))
        offset += lengths[-1]
        beats -= lengths[-1]
    return lengths


class ReadBus:
    def __init__(self, config: NpuConfig, latency: int, dram: Dram | None) -> None:
        self._config, self._latency, self._dram = config, latency, dram
        # From when on a request can be taken, to wait in its skid buffer if it must, and cut into bursts.
        self._place_free = self._splitter_free = 0
        self._data_free = 0
        #: When the last beats of the bursts in flight came.
        self._flight: deque[int] = deque([NEVER] * config.outstanding_reads, config.outstanding_reads)
        self._addresses: list[int] = []
        self._ends: list[int] = []
        self.beats = 0
        self._fetched = 0

    def load(self, time: int, offset: int, beats: int) -> tuple[int, np.ndarray]:
        """A request offered at ``time``: when it is accepted, and when its beats are on the bus."""
        accepted = max(time, self._place_free)
        issue, arrivals = max(accepted, self._splitter_free), []
        self._place_free = issue + 1
        for length in burst_lengths(self._config, offset, beats):
            issue = max(issue + 1, self._flight[0] + 1)
            times = self._answer(issue + ReadEngine.REQUEST_LATENCY - 1, data_base(self._config), offset, length)
            offset += length
            self._data_free = int(times[-1]) + 1
            self._flight.append(self._data_free - 1)
            self._addresses.append(issue)
            self._ends.append(self._data_free)
            arrivals.append(times)
        self._splitter_free = issue
        self.beats += beats
        return accepted, arrivals[0] if len(arrivals) == 1 else np.concatenate(arrivals)

    def _answer(self, cycle: int, base: int, offset: int, beats: int) -> np.ndarray:
        """When the beats are on the bus of a burst at ``base`` + ``offset`` (beats) whose address is taken in a cycle.
        """
        if self._dram is None:
            first = max(cycle + self._latency, self._data_free)
            return np.arange(first, first + beats)
        beat_bytes = self._config.beat_bytes
        times = self._dram.read(cycle, base + offset * beat_bytes, beats, beat_bytes)
        return earliest(np.maximum(times, self._data_free))

    def fetch(self, time: int, beats: int) -> int:
        """Instructions asked for at ``time``: the cycle of their first beat. Loads asked for later make way."""
        if self._dram is not None:
            times = self._answer(time + ReadEngine.REQUEST_LATENCY, PROGRAM_BASE, self._fetched, beats)
            self._fetched += beats
            self._data_free = int(times[-1]) + 1
            self.beats += beats
            return int(times[0])
        before = bisect_right(self._addresses, time)
        first = max(time + ReadEngine.REQUEST_LATENCY + self._latency, self._ends[before - 1] if before else 0)
        self._data_free = max(self._data_free, first) + beats
        self.beats += beats
        return first
