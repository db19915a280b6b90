"""The read bus: at most one beat a cycle, answers in order, shared by instruction fetch and loads."""

from collections import deque

import numpy as np

from cores.arch.axi import BOUNDARY_BYTES, MAX_BURST
from cores.config import NpuConfig
from cores.timing.bus import ReadEngineTiming

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
    """Requests must come in the order in which they are taken, which those that wait for a place are from ``free`` on;
    of two of one cycle fetch's first."""

    def __init__(self, config: NpuConfig, latency: int, dram: Dram | None) -> None:
        self._config, self._latency, self._dram = config, latency, dram
        #: From when on a request can be taken, to wait in the skid buffer if it must.
        self.free = 0
        self._splitter_free = 0         # and be cut into bursts
        self._data_free = 0
        self._pace = 1 if dram is None else dram.timing.read_pace
        #: When the last beats of the bursts in flight came.
        self._flight: deque[int] = deque([NEVER] * config.outstanding_reads, config.outstanding_reads)
        self.beats = 0
        self._fetched = 0

    def load(self, taken: int, offset: int, beats: int) -> np.ndarray:
        """A request of the data region that is taken in a cycle, not before ``free``: when its beats are on the bus."""
        return self._request(taken, data_base(self._config), offset, beats)

    def fetch(self, time: int, beats: int) -> tuple[int, np.ndarray]:
        """The program's next beats, asked for at ``time``: when the request is taken, and when they are on the bus."""
        begin, self._fetched = self._fetched, self._fetched + beats
        taken = max(time, self.free)
        return taken, self._request(taken, PROGRAM_BASE, begin, beats)

    def _request(self, taken: int, base: int, offset: int, beats: int) -> np.ndarray:
        issue, arrivals = max(taken, self._splitter_free), []
        self.free = issue + 1
        for length in burst_lengths(self._config, offset, beats):
            issue = max(issue + 1, self._flight[0] + 1)
            times = self._answer(issue + ReadEngineTiming.REQUEST_LATENCY - 1, base, offset, length)
            offset += length
            self._data_free = int(times[-1]) + self._pace
            self._flight.append(int(times[-1]))
            arrivals.append(times)
        self._splitter_free = issue
        self.beats += beats
        return arrivals[0] if len(arrivals) == 1 else np.concatenate(arrivals)

    def _answer(self, cycle: int, base: int, offset: int, beats: int) -> np.ndarray:
        """When the beats are on the bus of a burst at ``base`` + ``offset`` (beats) whose address is taken in a cycle.
        """
        if self._dram is None:
            first = max(cycle + self._latency, self._data_free)
            return np.arange(first, first + beats)
        beat_bytes = self._config.beat_bytes
        times = self._dram.read(cycle, base + offset * beat_bytes, beats, beat_bytes)
        return earliest(np.maximum(times, self._data_free), self._pace)
