"""Which instructions are ordered by tokens, and what goes wrong where they are not.

Every queue keeps a clock: for each stage, the index of the last instruction that it knows to be done. A token carries
the clock of its poster to its taker, so an access is ordered after another exactly if its queue's clock reaches it.
Data in the rings are not tokens: they order nothing but themselves.
"""

import enum
from dataclasses import dataclass

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import EntryForm, Queue
from cores.arch.numerics import SIGN_BLOCKS
from cores.config import NpuConfig

from .errors import HazardError

__all__ = ["Clock", "Hazards", "Stage", "blocks_of_entry", "check_box"]

#: For each stage of `Stage` the last instruction known to be done; -1 before the first.
Clock = tuple[int, ...]

_NEVER = np.int32(-1)


def check_box(config: NpuConfig, index: int, geometry: Instruction, instruction: Instruction,
              gather: Instruction | None = None) -> None:
    """Raise HazardError for a LOAD_ACT of more pixels, or runs, than the input buffer has places for.

    It overwrites what it has written, so no program needs it; and simulating it may take any time and memory.
    """
    rows = instruction["pad_top"] + instruction["rows"] + instruction["pad_bottom"]
    if gather is not None:
        cols, parts = max(geometry["cols"], gather["outputs"]), config.beat_bytes
    else:
        cols = geometry["pad_left"] + geometry["cols"] + geometry["pad_right"]
        parts = blocks_of_entry(geometry)
    if instruction["blocks"] * rows * cols > config.banks * config.input_depth * parts:
        raise HazardError(index, "it writes an input-buffer entry twice", code="written-twice")


def blocks_of_entry(geometry: Instruction) -> int:
    """Blocks that an entry of the input buffer has room for, as a LOAD_SET wants it filled."""
    match geometry["form"]:
        case EntryForm.SIGNS:
            return SIGN_BLOCKS
        case EntryForm.SIGN_PAIRS:
            return SIGN_BLOCKS // 2
        case _:
            return 1


class Stage(enum.IntEnum):
    """What a token can vouch for."""

    LOADED = 0      # a load's data is in the input buffer
    COMPUTED = 1    # a compute instruction has read its inputs and finished its sums
    READ = 2        # a store has read its accumulators
    WRITTEN = 3     # a store's data is in memory
    KEPT = 4        # a local store's data is in the input buffer


@dataclass(frozen=True, eq=False)
class OptionalRead:
    """Input-buffer ``entries`` that instruction ``index`` reads for sums at ``places``, which may never be stored."""

    index: int
    entries: np.ndarray
    places: np.ndarray


class Hazards:
    """Clocks of the queues, and who last touched each entry, accumulator and beat.

    The check methods raise HazardError; each is called when its access takes effect.
    """

    def __init__(self, config: NpuConfig, data_beats: int) -> None:
        self.clocks: dict[Queue, Clock] = dict.fromkeys((Queue.LOAD, Queue.COMPUTE, Queue.STORE), (-1,) * len(Stage))
        entries = config.banks * config.input_depth
        places = (2, config.acc_depth * config.word_places)
        #: The last load, local store and compute instruction of each entry.
        self.entry_writer, self.entry_storer = np.full(entries, _NEVER), np.full(entries, _NEVER)
        self.entry_reader = np.full(entries, _NEVER)
        self.sum_writer, self.sum_reader = np.full(places, _NEVER), np.full(places, _NEVER)
        #: Sums that are left to chance: nobody may store them.
        self.sum_spoiled = np.zeros(places, bool)
        self.optional: tuple[list[OptionalRead], list[OptionalRead]] = [], []
        self.beat_writer, self.beat_reader = np.full(data_beats, _NEVER), np.full(data_beats, _NEVER)

    def posted(self, queue: Queue, index: int, *done: Stage) -> Clock:
        """The clock that a token of instruction ``index`` carries."""
        clock = list(self.clocks[queue])
        for stage in done:
            clock[stage] = index
        return tuple(clock)

    def taken(self, queue: Queue, token: Clock) -> None:
        self.clocks[queue] = tuple(map(max, self.clocks[queue], token))

    def synchronised(self, index: int) -> None:
        """Everything before instruction ``index`` is done."""
        for queue in self.clocks:
            self.clocks[queue] = (index,) * len(Stage)

    def _ordered(self, queue: Queue, stage: Stage, earlier: np.ndarray, index: int, message: str) -> None:
        latest = int(earlier.max(initial=-1))
        if latest > self.clocks[queue][stage]:
            raise HazardError(index, f"no token orders it after instruction {latest}, {message}", code="unordered")

    def load_reads(self, index: int, beats: np.ndarray) -> None:
        self._ordered(Queue.LOAD, Stage.WRITTEN, self.beat_writer[beats], index, "which stores what it loads")
        self.beat_reader[beats] = index

    def load_writes(self, index: int, entries: np.ndarray, parts: np.ndarray | int = 0) -> None:
        """``parts``: where in its entry each begins, of those that are written in parts."""
        self._ordered(Queue.LOAD, Stage.KEPT, self.entry_storer[entries], index,
                      "which stores to the input-buffer entries it overwrites")
        self._overwrites(Queue.LOAD, index, entries, parts)
        self.entry_writer[entries] = index

    def store_keeps(self, index: int, entries: np.ndarray) -> None:
        """A local store writes entries."""
        self._ordered(Queue.STORE, Stage.LOADED, self.entry_writer[entries], index,
                      "which loads the input-buffer entries it overwrites")
        self._overwrites(Queue.STORE, index, entries)
        self.entry_storer[entries] = index

    def _overwrites(self, queue: Queue, index: int, entries: np.ndarray, parts: np.ndarray | int = 0) -> None:
        self._ordered(queue, Stage.COMPUTED, self.entry_reader[entries], index,
                      "which reads the input-buffer entries it overwrites")
        if np.bincount((32 * entries + parts).ravel()).max() > 1:
            raise HazardError(index, "it writes an input-buffer entry twice", code="written-twice")
        for bank, reads in enumerate(self.optional):
            for read in reads:
                if read.index > self.clocks[queue][Stage.COMPUTED] and np.isin(entries, read.entries).any():
                    self.sum_spoiled[bank, read.places] = True

    def compute_reads(self, index: int, entries: np.ndarray) -> None:
        if not entries.size:
            return
        loads, stores = self.entry_writer[entries], self.entry_storer[entries]
        if np.maximum(loads, stores).min() < 0:
            raise HazardError(index, "it reads input-buffer entries that were never loaded", code="never-written")
        self._ordered(Queue.COMPUTE, Stage.LOADED, loads, index, "which loads what it reads")
        self._ordered(Queue.COMPUTE, Stage.KEPT, stores, index, "which stores what it reads")
        self.entry_reader[entries] = index

    def compute_may_read(self, index: int, entries: np.ndarray, bank: int, places: np.ndarray) -> None:
        """Entries may be anything as long as nobody stores the sums they go into."""
        if not entries.size:
            return
        loads, stores = self.entry_writer[entries], self.entry_storer[entries]
        clock = self.clocks[Queue.COMPUTE]
        if np.maximum(loads, stores).min() < 0 or loads.max() > clock[Stage.LOADED] or stores.max() > clock[Stage.KEPT]:
            self.sum_spoiled[bank, places] = True
        self.optional[bank].append(OptionalRead(index, entries.ravel(), places.ravel()))

    def compute_writes(self, index: int, bank: int, places: np.ndarray, first: bool) -> None:
        if first:
            self.sum_spoiled[bank, places] = False
            self.optional[bank][:] = [read for read in self.optional[bank] if not np.isin(read.places, places).any()]
        elif self.sum_writer[bank, places].min() < 0:
            raise HazardError(index, "it adds to accumulators that were never computed", code="never-written")
        self._ordered(Queue.COMPUTE, Stage.READ, self.sum_reader[bank, places], index,
                      "which stores the accumulators it changes")
        self.sum_writer[bank, places] = index

    def store_reads(self, index: int, bank: int, places: np.ndarray) -> None:
        writers = self.sum_writer[bank, places]
        if writers.min() < 0:
            raise HazardError(index, "it stores accumulators that were never computed", code="never-written")
        if self.sum_spoiled[bank, places].any():
            raise HazardError(index, "it stores sums of input-buffer entries that were not there yet, or no longer",
                              code="never-written")
        self._ordered(Queue.STORE, Stage.COMPUTED, writers, index, "which computes what it stores")
        for read in self.optional[bank]:
            if np.isin(read.places, places).any():
                self.entry_reader[read.entries] = np.maximum(self.entry_reader[read.entries], read.index)
        self.sum_reader[bank, places] = index

    def store_writes(self, index: int, beats: np.ndarray) -> None:
        self._ordered(Queue.STORE, Stage.LOADED, self.beat_reader[beats], index, "which loads the memory it overwrites")
        self.beat_writer[beats] = index
