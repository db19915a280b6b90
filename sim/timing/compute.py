"""Time of the compute engine: tiles through the array, windows through the pool unit."""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import ROW_SETTERS, Opcode, Queue, StepKind, WordForm
from cores.arch.rows import RowPass
from cores.timing.binary import BinaryWordsTiming
from cores.timing.buffers import AccumulatorsTiming
from cores.timing.compute import (
    ComputeEngineTiming,
    EnginePairTiming,
    MacArrayTiming,
    TileLoopsTiming,
    WeightLoaderTiming,
)
from cores.timing.rows import RowUnitTiming

from ..stochastic.streams import Streams
from .fifo import NEVER, earliest
from .latencies import ISSUE_TO_DATA, POOL_CYCLES
from .state import Shared, Steps, TimedSteps

__all__ = ["Compute"]

#: Cycles until the pool unit's ``ready`` counts that a result can be taken, and that one was taken.
_FILLED, _TAKEN = 1, 2


@dataclass(frozen=True)
class _Tile:
    """A COMPUTE: ``steps`` of ``words`` cycles of the array, ``pace`` cycles apart at least.

    ``longer``: how many of the first steps have a ``row`` of words more; ``beats``, ``handover``, ``lead``: of a step's
    weights, `ComputeEngineTiming.handover` and `WeightLoaderTiming.lead`.
    """

    steps: int
    words: int
    row: int
    longer: int
    pace: int
    beats: int
    handover: int
    lead: int

    @property
    def cycles(self) -> int:
        """From the first issue to the last, at least."""
        return (self.steps - 1) * self.pace + self.words


def _taps(geometry: Instruction, instruction: Instruction) -> tuple[int, int]:
    """Of a POOL: its windows, and the taps of each."""
    return instruction["blocks"] * geometry["rows"] * geometry["cols"], geometry["kernel_h"] * geometry["kernel_w"]


class Compute:
    def __init__(self, shared: Shared) -> None:
        config = shared.config
        self.shared = shared
        self.clock = 0
        self._min_step = ComputeEngineTiming.min_step(config)
        self._kinds: dict[StepKind, tuple[int, int, int]] = {}
        #: From an instruction's coming to the head of the queue until it can be taken.
        self._looking = EnginePairTiming.LATENCY if config.binary_engine else 0
        #: How much later than its first read a window's word is complete.
        self._behind = config.window_reads - 1
        #: From an issue until its sums are in the accumulators, int8 and binary.
        sums = [ComputeEngineTiming.sums_latency(config)] * 2
        if config.binary_engine:
            sums = [MacArrayTiming.latency(config), BinaryWordsTiming.shortest_latency(config)]
        added = AccumulatorsTiming.LATENCY - AccumulatorsTiming.READ_AHEAD
        self._drains = [ISSUE_TO_DATA + latency + added for latency in sums]
        self._stream_lag = ComputeEngineTiming.lag(config)
        #: First cycle in which the next step may start, and in which its weights may be gathered.
        self._step_free = self._gather_free = NEVER
        #: Results of the pool unit that it is known of that they are in the FIFO, and that they were taken.
        self._written = self._fetched = 0
        #: Instructions that were taken while another ran, and when.
        self._ahead: deque[tuple[int, int]] = deque()
        self._tiles: dict[int, _Tile] = {}
        #: Cycles for which each instruction keeps the array or the pool unit, at least; and those that are to begin.
        self._least: dict[int, int] = {}
        self._plan()
        self.to_come = sum(self._least.values())

    def _plan(self) -> None:
        """Look at the work before it is timed."""
        geometry: Instruction | None = None
        for index, instruction in enumerate(self.shared.program):
            if instruction.opcode == Opcode.COMPUTE_SET:
                geometry = instruction
            elif instruction.opcode == Opcode.COMPUTE:
                assert geometry is not None
                self._tiles[index] = tile = self._tile_of(geometry, instruction)
                self._least[index] = tile.cycles
            elif instruction.opcode == Opcode.POOL:
                assert geometry is not None
                self._least[index] = math.prod(_taps(geometry, instruction))
            elif instruction.opcode == Opcode.END:
                break

    def run(self) -> Steps:
        shared, engine = self.shared, Queue.COMPUTE
        geometry: Instruction | None = None
        queue = shared.queues[engine]
        free = 0            # the register of the next instruction
        last = -1           # last issue of the instruction before
        kind = _kind_of(None, None)    # and what it has in common with others that may follow at once
        before = -1         # that instruction
        rows = False        # whether it was of rows
        binary = False      # whether it was a binary COMPUTE
        drained = NEVER     # and when its last sums were in the accumulators
        while True:
            while not self._ahead and not queue.available:
                yield "an instruction"
            if self._ahead:
                index, taken = self._ahead.popleft()
                instruction = shared.program[index]
                is_binary = binary
            else:
                index = shared.pending[engine][queue.popped]
                instruction = shared.program[index]
                there = queue.next_readable()
                taken = max(there + self._looking, free)
                is_binary = instruction.opcode == Opcode.COMPUTE and instruction["kind"] == StepKind.BINARY
                if shared.config.binary_engine and instruction.opcode != Opcode.COMPUTE_SET and is_binary != binary:
                    # The other engine takes it when this one has nothing left. Until then it counts as work on the
                    # last.
                    finished = drained + 1 + ComputeEngineTiming.REPORT
                    draining = finished - max(there + self._looking, last + 1)
                    if before >= 0 and draining > 0:
                        shared.spent(engine, "setup", before, draining)
                        shared.last[engine - 1, before] = finished - 1 + ComputeEngineTiming.REPORT
                    taken = max(taken, finished)
                if instruction.opcode in ROW_SETTERS and last >= 0:
                    taken = max(taken, last + ComputeEngineTiming.distance(shared.config))
                queue.pop_one(taken)
            free = taken + 1 + self._looking
            if instruction.opcode in ROW_SETTERS:
                shared.in_hand(engine, index, taken, taken)
                shared.finished[engine] += 1
                yield None
                continue
            if instruction.opcode == Opcode.COMPUTE_SET:
                geometry = instruction
                shared.in_hand(engine, index, taken, taken)
                shared.finished[engine] += 1
                yield None
                continue
            yield None
            assert geometry is not None
            seen = max(taken + 1, last)
            loaded = yield from shared.take(engine, Queue.LOAD, instruction["wait_load"])
            stored = yield from shared.take(engine, Queue.STORE, instruction["wait_store"])
            # It is prepared when its tokens are there, whether another runs or not.
            active = max(seen, max(taken + 1, loaded, stored) + TileLoopsTiming.PREPARE)
            last_kind, kind = kind, _kind_of(geometry, instruction)
            rows_before, rows = rows, bool(instruction.opcode == Opcode.POOL and instruction["row_pass"])
            if (kind != last_kind or rows or rows_before) and last >= 0:
                active = max(active, last + 1 + ComputeEngineTiming.distance(shared.config))
            free = active + 1
            self._take_ahead(free)
            waiting = max(seen, last + 1)
            waits = max(0, loaded - waiting), max(0, stored - max(waiting, loaded))
            shared.spent(engine, "wait_load", index, waits[0])
            shared.spent(engine, "wait_store", index, waits[1])
            # If nothing is running, it becomes the running one in a cycle of its own.
            shared.spent(engine, "setup", index, active + 1 - waiting - sum(waits))
            self.clock = active
            self.to_come -= self._least[index]
            if instruction.opcode == Opcode.COMPUTE:
                last = yield from self._tile(index, taken + 1 + WeightLoaderTiming.LATENCY, active)
            else:
                last = yield from self._windows(index, geometry, instruction, active)
            self.clock = last
            shared.in_hand(engine, index, waiting + ComputeEngineTiming.REPORT, last + ComputeEngineTiming.REPORT)
            if instruction["post_load"]:
                shared.post(engine, Queue.LOAD, last)
            before, binary = index, is_binary
            windowed, made = kind
            drained = last + self._drains[binary] + windowed * self._behind + (made is not None) * self._stream_lag
            if instruction["post_store"]:
                shared.post(engine, Queue.STORE, drained - 1)
            shared.finished[engine] += 1
            shared.idle_from[engine] = drained + 1 + ComputeEngineTiming.REPORT
            yield None

    def _take_ahead(self, free: int) -> None:
        """Take the next instruction, from the cycle ``free`` on, while the one at hand runs.

        So instruction fetch, which waits for a place in the queue, is not timed after what comes later.
        """
        shared, queue = self.shared, self.shared.queues[Queue.COMPUTE]
        while queue.available and not shared.config.binary_engine:
            index = shared.pending[Queue.COMPUTE][queue.popped]
            if shared.program[index].opcode in ROW_SETTERS:     # they wait until nothing runs
                break
            taken = max(queue.next_readable() + self._looking, free)
            queue.pop_one(taken)
            self._ahead.append((index, taken))
            if shared.program[index].opcode != Opcode.COMPUTE_SET:
                break
            free = taken + 1 + self._looking

    def _tile(self, index: int, known: int, active: int) -> TimedSteps:
        """COMPUTE: steps of all words, or all reads of windows, each. Returns the last issue's cycle."""
        shared, tile = self.shared, self._tiles[index]
        steps, words, row, longer = tile.steps, tile.words, tile.row, tile.longer
        beats, handover, lead = tile.beats, tile.handover, tile.lead
        may_start = max(active + 1, self._step_free)
        gather = max(known, self._gather_free)
        idle_from = active + 1
        held, part = 0, NEVER               # beats of the next step that are gathered already, and until when
        final = active
        while steps:
            ring = shared.weights
            while held + ring.available < beats and not ring.full:
                yield "weights"
            count = min(steps, (held + ring.available) // beats)
            if not count:                   # a step larger than the ring
                times = earliest(np.maximum(ring.readable(ring.available), max(gather, part + 1)))
                held, part = held + len(times), int(times[-1])
                ring.pop(times)
                yield None
                continue
            count = min(count, longer) if longer else count
            cycles = words + row if longer else words
            pace = max(cycles, tile.pace)
            longer = max(0, longer - count)
            if not held and ring.next_readable(count * beats - 1) <= gather:
                # All weights are there before any can be gathered: only the array's own pace counts.
                start, after = max(may_start, gather + beats + 1 - lead), handover + beats + 1 - lead
                final = start + (count - 1) * pace
                gathers = np.concatenate([[gather], np.arange(start, final, pace) + handover])
                ring.pop((gathers[:, None] + np.arange(beats)).ravel())
                late = gather + beats + 1 - lead - max(idle_from, gather)
                waited = min(max(late, 0), start - idle_from)
                waited += (count - 1) * min(max(after - max(cycles, handover), 0), pace - cycles)
                self._steps(index, count * cycles, waited, final - idle_from - (count - 1) * cycles - waited)
                steps -= count
                may_start, gather, idle_from = final + pace, final + handover, final + cycles
                self.clock = final + cycles - 1
                yield None
                continue
            there = np.full(count * beats, NEVER)
            there[held:] = ring.readable(count * beats - held)
            there[0] = max(there[0], part + 1 - held)
            there[held] = max(there[held], gather)
            arrived = there.reshape(count, beats)
            allowed = _ready(_taken(arrived), arrived, lead)
            allowed[0] = max(allowed[0], may_start)
            starts = earliest(allowed, pace)
            gathers = np.concatenate([[gather - held], starts[:-1] + handover])
            times = _taken(np.maximum(arrived, gathers[:, None]))
            ring.pop(times.ravel()[held:])
            ready = _ready(times, arrived, lead)
            free = np.concatenate([[idle_from], starts[:-1] + cycles])
            # Until its weights can be gathered, a step waits for the one before, not for weights.
            waits = np.clip(ready - np.maximum(free, gathers), 0, starts - free)
            waited = int(waits.sum())
            self._steps(index, count * cycles, waited, int((starts - free).sum()) - waited)
            steps, held, part = steps - count, 0, NEVER
            final = int(starts[-1])
            may_start, gather, idle_from = final + pace, final + handover, final + cycles
            self.clock = final + cycles - 1
            yield None
        # A following instruction's first step has a pace of its own.
        self._step_free, self._gather_free = max(idle_from, final + self._min_step), gather
        return idle_from - 1

    def _tile_of(self, geometry: Instruction, instruction: Instruction) -> "_Tile":
        config = self.shared.config
        kind = StepKind(instruction["kind"])
        if kind == StepKind.WINDOW:
            row = max(1, geometry["reads"])
        else:
            row = -(-geometry["cols"] // config.word_columns(spread=geometry["words"] == WordForm.SPREAD))
        words = geometry["rows"] * row
        if kind == StepKind.STOCHASTIC:     # cycles
            words *= Streams.of_fields(instruction.fields).made // config.stochastic_bits
        beats, handover, lead = self._kind(kind)
        return _Tile(
            instruction["blocks"] * geometry["kernel_h"] * geometry["kernel_w"] * instruction["groups"], words, row,
            geometry["kernel_w"] if geometry["shift"] else 0, max(words, self._min_step, handover + beats + 1 - lead),
            beats, handover, lead)

    def _kind(self, kind: StepKind) -> tuple[int, int, int]:
        """Of a kind of steps: their beats, `ComputeEngineTiming.handover` and `WeightLoaderTiming.lead`."""
        config = self.shared.config
        if kind not in self._kinds:
            self._kinds[kind] = (config.step_beats(kind), ComputeEngineTiming.handover(config, kind),
                                 WeightLoaderTiming.lead(config, kind, taken=ComputeEngineTiming.handover(config)))
        return self._kinds[kind]

    def _steps(self, index: int, busy: int, waited: int, setup: int) -> None:
        for state, cycles in (("busy", busy), ("wait_weights", waited), ("setup", setup)):
            self.shared.spent(Queue.COMPUTE, state, index, cycles)

    def _windows(self, index: int, geometry: Instruction, instruction: Instruction, active: int) -> TimedSteps:
        """POOL: a tap a cycle; a window begins when there is room for its result. Returns the last tap's cycle."""
        windows, taps = _taps(geometry, instruction)
        may_start = active + 1
        if instruction["row_pass"]:
            # Passes without results wait for room, too.
            results = ISSUE_TO_DATA + RowUnitTiming.LONGEST if instruction["row_pass"] == RowPass.RESULT else 0
            return (yield from self._begun(index, windows, 1, results, may_start))
        results = 0 if instruction["open"] else taps - 1 + POOL_CYCLES
        return (yield from self._begun(index, windows, taps, results, may_start))

    def _begun(self, index: int, count: int, taps: int, results: int, may_start: int) -> TimedSteps:
        """``count`` windows of ``taps`` cycles, or blocks of pixels, each of which has its result in the FIFO
        ``results`` cycles later, none if 0. Returns the last tap's cycle.

        One begins when few enough results are in the FIFO, whatever is under way.
        """
        shared, fifo, time = self.shared, self.shared.pooled, may_start
        written, taken, pushed = self._written, self._fetched, False
        for _ in range(count):
            while True:
                while written < fifo.pushed and fifo.filled(written) + _FILLED <= time:
                    written += 1
                while taken < fifo.popped and fifo.freed(taken) + _TAKEN <= time:
                    taken += 1
                if written - taken < fifo.depth:
                    break
                while taken == fifo.popped:
                    self.clock = time
                    yield None if pushed else "the store engine to take pooled pixels"
                    pushed = False
                time = max(time, fifo.freed(taken) + _TAKEN)
            if results:
                fifo.push_one(time + results)
            time, pushed = time + taps, True
        self._written, self._fetched = written, taken
        shared.spent(Queue.COMPUTE, "busy", index, count * taps)
        shared.spent(Queue.COMPUTE, "wait_store", index, time - may_start - count * taps)
        self.clock = time
        yield None
        return time - 1


def _kind_of(geometry: Instruction | None, instruction: Instruction | None) -> tuple[bool, int | None]:
    """Whether a COMPUTE is of windows, and for how long its words of streams stay; other kinds keep their distance."""
    if geometry is None or instruction is None or instruction.opcode != Opcode.COMPUTE:
        return False, None
    kind = instruction["kind"]
    return kind == StepKind.WINDOW, instruction["made"] if kind == StepKind.STOCHASTIC else None


def _taken(allowed: np.ndarray) -> np.ndarray:
    """When the beats of steps, (steps, beats), leave the ring: in order, one a cycle."""
    lanes = np.arange(allowed.shape[1])
    return np.maximum.accumulate(allowed - lanes, axis=1) + lanes


def _ready(taken: np.ndarray, arrived: np.ndarray, lead: int) -> np.ndarray:
    """When each step may start: after a beat with which all but ``lead`` - 1 are taken and the others are counted."""
    # A beat is counted the cycle before it can be taken, and compared a cycle later.
    behind = taken[:, -lead:]
    enough = behind >= arrived[:, -1:]
    enough[:, -1] = True
    return behind[np.arange(len(behind)), enough.argmax(axis=1)] + 1
