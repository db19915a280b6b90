"""The functional simulator, keeping what each instruction writes."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import Queue
from cores.config import NpuConfig

from ..hazards import Clock, Hazards, Stage
from ..machine import Machine
from ..storage import Ring

__all__ = ["Handover", "RecordingMachine", "Writes"]


@dataclass(eq=False)
class Writes:
    """Writes in the order in which they take effect: of places that are numbers, for instructions."""

    _places: list[np.ndarray] = field(default_factory=list)
    _values: list[np.ndarray] = field(default_factory=list)
    _indices: list[np.ndarray] = field(default_factory=list)

    def add(self, index: int, places: np.ndarray, values: np.ndarray) -> None:
        """``places`` and ``values`` of one shape."""
        self._places.append(places.ravel())
        self._values.append(values.ravel())
        self._indices.append(np.full(places.size, index))

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Places, values and instructions: int64 (writes,)."""
        return tuple(np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)  # type: ignore[return-value]
                     for parts in (self._places, self._values, self._indices))


@dataclass(frozen=True, eq=False)
class Handover:
    """Sums when the token of instruction ``index`` says that they are done: places in both banks, and values.

    ``places``: int64 (n,), ``bank * words * lanes + word * lanes + lane``. ``writers``: the instruction of each.
    """

    index: int
    places: np.ndarray
    values: np.ndarray
    writers: np.ndarray


class RecordingMachine(Machine):
    """A strict `Machine` that records.

    ``entries``: lanes of input-buffer entries, as ``place * lanes + lane``. ``flags``: of entries' halves, as
    ``place * 2 + half``. ``beats``: bytes of memory, from the data region's first. ``streams``: beats and pixels that
    the rings and the pool unit get, as ``number * lanes + lane``. ``handovers``: of COMPUTEs to STOREs.
    """

    def __init__(self, config: NpuConfig, code: bytes, memory: np.ndarray, *, write_start: int,
                 stream_shift: int = 0) -> None:
        super().__init__(config, code, memory, write_start=write_start, strict=True, stream_shift=stream_shift)
        self.entries, self.flags, self.beats = Writes(), Writes(), Writes()
        self.streams = {"weight": Writes(), "side": Writes(), "pool": Writes()}
        self.handovers: list[Handover] = []
        self.hazards = _RecordingHazards(config, len(self.memory))
        self.weights = _RecordingRing(self, "weight", config.weight_depth)
        self.side = _RecordingRing(self, "side", config.side_depth)
        self.pool_pixels = _RecordingPixels(self)
        self._passed = dict.fromkeys(self.streams, 0)

    def put(self, index: int, places: np.ndarray, values: np.ndarray, padding: np.ndarray | bool = False, *,
            first: int = 0) -> None:
        super().put(index, places, values, padding, first=first)
        lanes, width = self.config.ic_lanes, values.shape[-1]
        self.entries.add(index, places[..., None] * lanes + first + np.arange(width),
                         np.broadcast_to(values, (*places.shape, width)))
        flags = np.broadcast_to(padding, (*places.shape, 2))
        for half in range(2):
            if first <= half * self.config.sign_bytes < first + width:
                self.flags.add(index, places * 2 + half, flags[..., half])

    def write(self, index: int, beats: np.ndarray, values: np.ndarray) -> None:
        super().write(index, beats, values)
        size = self.config.beat_bytes
        self.beats.add(index, beats[..., None] * size + np.arange(size), values)

    def passed(self, stream: str, queue: Queue, values: np.ndarray) -> None:
        """``values`` (n, lanes) went into a stream."""
        number, width = self._passed[stream], values.shape[-1]
        self._passed[stream] += len(values)
        index = self.in_hand[queue]
        assert index is not None
        self.streams[stream].add(index, (number + np.arange(len(values)))[:, None] * width + np.arange(width), values)

    def post(self, queue: Queue, index: int, instruction: Instruction, flag: str, *done: Stage) -> None:
        super().post(queue, index, instruction, flag, *done)
        if queue == Queue.COMPUTE and flag == "post_store" and instruction[flag]:
            self.handovers.append(self._handover(index))

    def _handover(self, index: int) -> Handover:
        """The places that were computed since the last one."""
        assert isinstance(self.hazards, _RecordingHazards)
        lanes, sums = self.config.ic_lanes, self.accumulators.sums
        found = [(bank * sums.shape[1] + places, np.full(len(places), writer))
                 for writer, bank, places in self.hazards.take_computed()]
        places, writers = (np.concatenate([np.zeros(0, np.int64), *parts])
                           for parts in (zip(*found, strict=True) if found else ((), ())))
        # The last to write a place is its writer.
        places, last = np.unique(places[::-1], return_index=True)
        writers = writers[::-1][last]
        return Handover(index, (places[:, None] * lanes + np.arange(lanes)).ravel(),
                        sums.reshape(-1, lanes)[places].ravel(), np.repeat(writers, lanes))


class _RecordingHazards(Hazards):
    def __init__(self, config: NpuConfig, data_beats: int) -> None:
        super().__init__(config, data_beats)
        self._computed: list[tuple[int, int, np.ndarray]] = []

    def compute_writes(self, index: int, bank: int, places: np.ndarray, first: bool) -> None:
        super().compute_writes(index, bank, places, first)
        self._computed.append((index, bank, places.ravel()))

    def take_computed(self) -> list[tuple[int, int, np.ndarray]]:
        """Instruction, bank and places of the COMPUTEs since the last call.

        Without those of sums that go into no result: they may be made of what another program left in the buffer.
        """
        computed, self._computed = self._computed, []
        unwanted = {bank: np.concatenate([np.zeros(0, np.int64), *(read.places for read in reads)])
                    for bank, reads in enumerate(self.optional)}
        return [(index, bank, places[~np.isin(places, unwanted[bank])]) for index, bank, places in computed]


class _RecordingRing(Ring):
    def __init__(self, machine: RecordingMachine, name: str, depth: int) -> None:
        super().__init__(depth, machine.config.beat_bytes)
        self._machine, self._name = machine, name

    def push(self, beats: np.ndarray) -> None:
        super().push(beats)
        self._machine.passed(self._name, Queue.LOAD, beats)


class _RecordingPixels(deque[tuple[np.ndarray, Clock]]):
    def __init__(self, machine: RecordingMachine) -> None:
        super().__init__()
        self._machine = machine

    def append(self, pixels: tuple[np.ndarray, Clock]) -> None:
        super().append(pixels)
        self._machine.passed("pool", Queue.COMPUTE, pixels[0])
