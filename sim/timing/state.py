"""What the engines of the time model share."""

from collections.abc import Generator
from typing import Protocol

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode, Queue
from cores.arch.registers import ENGINE_STATES
from cores.config import NpuConfig
from cores.timing.compute import ComputeEngineTiming
from cores.timing.control import InstructionFetchTiming, TokenCounterTiming
from cores.timing.lib import BufferedFifoTiming, ShallowFifoTiming
from cores.timing.load import LoadEngineTiming
from cores.timing.pools import pool_of

from .bus import ReadBus
from .dram import Dram, DramTiming
from .fifo import NEVER, TimedFifo, earliest_around

__all__ = ["ENGINES", "STATES", "Process", "Shared", "Steps", "TimedSteps"]

#: A coroutine's reports: None after a piece of work, else what it waits for; and one that returns a cycle.
Steps = Generator[str | None, None, None]
TimedSteps = Generator[str | None, None, int]

ENGINES = (Queue.LOAD, Queue.COMPUTE, Queue.STORE)
STATES = max(map(len, ENGINE_STATES.values()))
_CODES = {(engine, state): code for engine in ENGINES for code, state in enumerate(ENGINE_STATES[engine.name.lower()])}

#: Writes that are timed at once where it is not known what stores do.
_IMPATIENT = 16


class Process(Protocol):
    """A part of the machine; ``clock`` is the cycle that it has been simulated up to."""

    @property
    def clock(self) -> float: ...

    def run(self) -> Steps: ...


class Tokens:
    """When the tokens of one counter become visible, in order."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.taken = 0

    def ready(self, count: int) -> int | None:
        """The cycle from which ``count`` more can be taken; None while that is not known."""
        last = self.taken + count
        if not count:
            return NEVER
        return self.times[last - 1] if last <= len(self.times) else None


class Shared:
    """FIFOs, tokens, bus and records of one estimate."""

    def __init__(self, config: NpuConfig, program: list[Instruction], latency: int,
                 dram: DramTiming | None = None) -> None:
        self.config, self.program, self.latency = config, program, latency
        self.dram = None if dram is None else Dram(dram)
        self.bus = ReadBus(config, latency, self.dram)
        self.queues = {
            queue: TimedFifo(config.queue_depth, InstructionFetchTiming.queue_latency(config, queue))
            for queue in ENGINES}
        #: Instructions on their way to each engine, as indices, and how many it has finished.
        self.pending: dict[Queue, list[int]] = {queue: [] for queue in ENGINES}
        self.finished = dict.fromkeys(ENGINES, 0)
        self.idle_from = dict.fromkeys(ENGINES, 0)
        #: Loads that have asked for their data and wait to be written, and the beats that are under way for them.
        self.contexts = TimedFifo(LoadEngineTiming.CONTEXTS, ShallowFifoTiming.LATENCY)
        self.load_data = TimedFifo(LoadEngineTiming.FIFO_DEPTH, 0)
        self.weights = TimedFifo(config.weight_depth, BufferedFifoTiming.LATENCY)
        self.side = TimedFifo(config.side_depth, BufferedFifoTiming.LATENCY)
        self.pooled = TimedFifo(ComputeEngineTiming.pool_slots(config), 0, remembered=2 * pool_of(config).FIFO_DEPTH)
        self.tokens = {(source, sink): Tokens() for source in ENGINES for sink in ENGINES if source != sink}
        self.write_beats = 0
        #: Cycles in which beats of local stores go to the input buffer, rising: loads stand still then. Those that
        #: loads are beyond are dropped.
        self.kept = np.empty(0, np.int64)
        #: All of them before this cycle are known, unless there are none; and others before the cycle ``until`` come
        #: only once loads have moved, for nothing else can.
        self.kept_until = 0
        self.keeps = any(instruction.opcode == Opcode.STORE_SET and instruction["local"] for instruction in program)
        self.until: float = 0
        #: Cycles in hand, as `sim.rtl`'s trace: first, last (engine, instruction), counts (engine, state, instruction).
        self.first = np.full((len(ENGINES), len(program)), -1, np.int64)
        self.last = self.first.copy()
        self.counts = np.zeros((len(ENGINES), STATES, len(program)), np.int64)

    def post(self, source: Queue, sink: Queue, time: int) -> None:
        """A token given by an event of cycle ``time``."""
        self.tokens[source, sink].times.append(time + TokenCounterTiming.LATENCY)

    def spent(self, engine: Queue, state: str, index: int, cycles: int) -> None:
        if cycles:
            self.counts[engine - 1, _CODES[engine, state], index] += cycles

    def in_hand(self, engine: Queue, index: int, first: int, last: int) -> None:
        self.first[engine - 1, index], self.last[engine - 1, index] = first, last

    def around_kept(self, allowed: np.ndarray) -> np.ndarray:
        """When a series of writes of the input buffer happens, one a cycle, none before it is ``allowed``."""
        # Series follow one another, so what is before this one is of no more use.
        self.kept = self.kept[self.kept.searchsorted(allowed[0]):]
        return earliest_around(self.kept, np.maximum(allowed, allowed[0]))

    def surely(self, times: np.ndarray) -> int:
        """How many of a series of writes are certain not to be put off by beats of local stores."""
        if not self.keeps:
            return len(times)
        known = int(times.searchsorted(self.kept_until))
        return known or min(int(times.searchsorted(self.until)), _IMPATIENT)

    def certain(self, time: int) -> bool:
        """Whether all beats of local stores up to that cycle are known."""
        return not self.keeps or time < self.kept_until or time < self.until

    def take(self, sink: Queue, source: Queue, count: int) -> TimedSteps:
        """Take tokens; returns the cycle from which they were there."""
        tokens = self.tokens[source, sink]
        while (time := tokens.ready(count)) is None:
            yield f"{count} token(s) of the {source.name.lower()} queue"
        tokens.taken += count
        return time
