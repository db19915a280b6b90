"""The read bus: one beat a cycle, answers in order, shared by instruction fetch and loads."""

from bisect import bisect_right
from collections import deque

import numpy as np

from cores.bus.axi import BOUNDARY_BYTES, MAX_BURST
from cores.bus.read_engine import ReadEngine
from cores.config import NpuConfig

from .fifo import NEVER

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
    def __init__(self, config: NpuConfig, latency: int) -> None:
        self._config, self._latency = config, latency
        self._splitter_free = 0
        self._data_free = 0
        #: When the last beats of the bursts in flight came.
        self._flight: deque[int] = deque([NEVER] * config.outstanding_reads, config.outstanding_reads)
        self._addresses: list[int] = []
        self._ends: list[int] = []
        self.beats = 0

    def load(self, time: int, offset: int, beats: int) -> tuple[int, np.ndarray]:
        """A request offered at ``time``: when it is accepted, and when its beats are on the bus."""
        accepted = max(time, self._splitter_free)
        issue, arrivals = accepted, []
        for length in burst_lengths(self._config, offset, beats):
            issue = max(issue + 1, self._flight[0] + 1)
            first = max(issue + ReadEngine.REQUEST_LATENCY - 1 + self._latency, self._data_free)
            self._data_free = first + length
            self._flight.append(first + length - 1)
            self._addresses.append(issue)
            self._ends.append(self._data_free)
            arrivals.append(np.arange(first, first + length))
        self._splitter_free = issue
        self.beats += beats
        return accepted, arrivals[0] if len(arrivals) == 1 else np.concatenate(arrivals)

    def fetch(self, time: int, beats: int) -> int:
        """Instructions asked for at ``time``: the cycle of their first beat. Loads asked for later make way."""
        before = bisect_right(self._addresses, time)
        first = max(time + ReadEngine.REQUEST_LATENCY + self._latency, self._ends[before - 1] if before else 0)
        self._data_free = max(self._data_free, first) + beats
        self.beats += beats
        return first
