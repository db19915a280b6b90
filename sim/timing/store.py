"""Time of the store engine and the write bus after it."""

import math
from collections import deque
from collections.abc import Generator, Mapping

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import SECOND_STAGES, Opcode, Queue, WordForm, loads
from cores.arch.numerics import MAP_PIXELS, PARAMETER_BYTES
from cores.timing.buffers import write_latency
from cores.timing.bus import WriteEngineTiming
from cores.timing.lib import FifoTiming
from cores.timing.store import (
    STORE_STAGES,
    LocalWriterTiming,
    RequantizerTiming,
    StoreEngineTiming,
    StoreRunsTiming,
    StoreSequencerTiming,
    stages_of,
)
from cores.timing.winograd import WinogradSumsTiming

from .bus import burst_lengths
from .dram import data_base
from .fifo import NEVER, TimedFifo, earliest
from .latencies import RELEASE_CYCLES, STORE_TO_BUS
from .state import Shared, Steps, TimedSteps
from .store_states import StoreStates
from .store_turns import turns_of

__all__ = ["Store"]

#: The first cycle of the multipliers' turns for pixels with a residual, which are fixed from the reset on.
_ADD_TURN = 1


def _turn(times: np.ndarray, cycles: int) -> np.ndarray:
    """The first cycles from ``times`` on in which a pixel may set out that has a turn in so many ``cycles``."""
    return times + (_ADD_TURN - times) % cycles


def _bursts(times: np.ndarray, origin: int) -> np.ndarray:
    """When pixels with STORE_LEAKY set out: in the first half of every twice `SECOND` cycles from ``origin`` on."""
    half = RequantizerTiming.SECOND
    burst, place = np.divmod(times - origin, 2 * half)
    burst, place = np.divmod(earliest(half * burst + np.minimum(place, half)), half)
    return origin + 2 * half * burst + place


class Store:
    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        #: Beats between the sequencer and the bus: those of both buffers.
        self._beats = TimedFifo(StoreEngineTiming.BUFFER_BEATS + WriteEngineTiming.BUFFER_BEATS, 0)
        self._parameters_free = 0
        self._runs_free = self._address_free = self._bus_free = 0
        #: Responses of the bursts in flight.
        in_flight = shared.config.outstanding_writes
        self._responses: deque[int] = deque([NEVER] * in_flight, in_flight)
        self.answered = 0

    @property
    def clock(self) -> int:
        """Beats of local stores leave later than that."""
        return self.shared.kept_until

    @clock.setter
    def clock(self, cycle: int) -> None:
        self.shared.kept_until = cycle

    def run(self) -> Steps:
        shared, engine = self.shared, Queue.STORE
        geometry: Instruction | None = None
        chain: dict[Opcode, Instruction] = {}
        queue = shared.queues[engine]
        free = drained = 0
        setup = StoreSequencerTiming.SETUP_CYCLES
        while True:
            while not queue.available:
                yield "an instruction"
            index = shared.pending[engine][queue.popped]
            instruction = shared.program[index]
            taken = max(queue.next_readable(), free)
            if instruction.opcode != Opcode.STORE:
                began = taken = max(taken, drained)
                if loads(instruction.opcode) and instruction["load"]:
                    taken = yield from self._load(instruction.opcode, index, taken)
                queue.pop_one(taken)
                if instruction.opcode == Opcode.STORE_SET:
                    geometry = instruction
                else:
                    chain = {} if instruction.opcode == Opcode.STORE_REQUANT else chain
                    chain = {**chain, instruction.opcode: instruction}
                self._in_hand(index, began, taken)
                free = taken + 1
                shared.finished[engine] += 1
                yield None
                continue
            queue.pop_one(taken)
            assert geometry is not None
            yield None
            computed = yield from shared.take(engine, Queue.COMPUTE, instruction["wait_compute"])
            go = max(taken + setup, computed + StoreSequencerTiming.TOKEN_CYCLES)
            shared.spent(engine, "setup", index, setup)
            shared.spent(engine, "wait_compute", index, go - taken - setup)
            self.clock = go
            last, left = yield from self._store(index, geometry, chain, instruction, taken + setup, go)
            free = max(last + 1, self._runs_free) + 1
            self._states.end(free)
            self._in_hand(index, taken + 1, free - 1)
            if instruction["post_compute"]:
                kept = left + LocalWriterTiming.LATENCY + write_latency(shared.config) - 1
                shared.post(engine, Queue.COMPUTE, kept if geometry["local"] else last)
            if instruction["post_load"]:
                shared.post(engine, Queue.LOAD, self.answered)
            shared.finished[engine] += 1
            drained = left + StoreEngineTiming.DRAINED_CYCLES
            shared.idle_from[engine] = max(max(free, drained) + StoreSequencerTiming.STATE_CYCLES, self.answered + 1)
            self.clock = free
            yield None

    def _store(self, index: int, geometry: Instruction, chain: Mapping[Opcode, Instruction], instruction: Instruction,
               wanted: int, go: int) -> Generator[str | None, None, tuple[int, int]]:
        """Issue all pixels. Returns the cycle of the last, and that in which its beat leaves the buffer after it."""
        shared, config = self.shared, self.shared.config
        second = next((chain[opcode] for opcode in SECOND_STAGES if opcode in chain), None)
        add, leaky, signs = second is not None, Opcode.STORE_LEAKY in chain, Opcode.STORE_SIGNS in chain
        adds = add and not leaky    # with a residual, which may serve a whole block
        common = adds and second is not None and bool(second["broadcast"])
        pooled, local = bool(instruction["pooled"]), bool(geometry["local"])
        # A pixel's parts set out one after the other, as pixels do elsewhere.
        parts = config.store_parts
        rows, cols, repeats = geometry["rows"], parts * geometry["cols"], parts * (1 + instruction["repeats"])
        tiles = geometry["words"] == WordForm.TILES and not pooled
        turns = turns_of(config, add=add, leaky=leaky, tiles=bool(tiles), signs=signs, common=common)
        origin = wanted + RequantizerTiming.SECOND
        pace = WinogradSumsTiming.WORDS if tiles else turns.cycles
        # Pixels of a beat.
        group = MAP_PIXELS if signs else math.prod(
            (stage.VALUES for stage in stages_of(config) if stage.OPCODE in chain), start=parts)
        latency = RequantizerTiming.latency(config, add=add) + sum(stage.LATENCY for stage in stages_of(config))
        latency += FifoTiming.LATENCY if local else STORE_TO_BUS
        port = 1 if local or shared.dram is None else shared.dram.timing.write_pace
        if tiles:
            latency += WinogradSumsTiming.WORDS - 1
        # Further cycles of a place that is vacant, until a pixel has it: a beat has moved up into the write engine.
        vacant = StoreEngineTiming.ROOM_CYCLES - 1 + (0 if local else FifoTiming.LATENCY)
        states = self._states = StoreStates(
            shared, index, go, work=(WinogradSumsTiming.WORDS if tiles else 1) + turns.after)
        time, sent, run, behind = go, go, go + StoreRunsTiming.RUN_CYCLES, go
        for block in range(instruction["blocks"]):
            loaded = yield from self._parameters(wanted)
            wanted = loaded + 1
            first = NEVER
            for row in range(rows):
                offset = instruction["offset"] + block * geometry["block_pitch"] + row * geometry["row_pitch"]
                self._runs_free = run = max(run, self._address_free)
                burst = run
                left, filled, column = cols, 0, 0
                beats = -(-cols // group)
                for length in [beats] if local else burst_lengths(config, offset, beats):
                    if local:
                        sent = run + 1
                    else:
                        burst = max(burst + 1, self._responses[0] + 1)
                        sent = max(burst + WriteEngineTiming.RUN_LATENCY + WriteEngineTiming.DATA_LATENCY - 1,
                                   self._bus_free)
                    pixels = min(left, length * group)
                    left -= pixels
                    begin, offset = offset, offset + length
                    while pixels:
                        residual = adds and not (common and first != NEVER)
                        count = min(pixels, self._beats.room * group - filled)
                        while (residual and not shared.side.available) or (pooled and not shared.pooled.available):
                            yield "residual or pooled pixels"
                        count = min(count, 1 if common else parts * shared.side.available) if residual else count
                        # The first pooled beat may have been written before, and stays until its last column.
                        count = min(count, shared.pooled.available * repeats - column % repeats) if pooled else count
                        places = self._beats.writable(-(-(filled + count) // group)) + vacant
                        if group > 1:
                            places = np.repeat(places, group)[filled:filled + count]
                        allowed = np.maximum(places, time + 1)
                        allowed[0] = max(allowed[0], loaded + 1)
                        needs: dict[str, np.ndarray] = {}       # in the order of `StoreStates`
                        if residual:
                            # Of a pixel's parts the first takes the beat.
                            needs["wait_side"] = np.full(count, NEVER)
                            needs["wait_side"][::parts] = shared.side.readable(-(-count // parts)) - turns.ahead
                        if pooled:
                            columns = column + np.arange(count)
                            ready = shared.pooled.readable(-(-(column % repeats + count) // repeats))
                            needs["wait_compute"] = ready[columns // repeats - column // repeats]
                        for there in needs.values():
                            allowed = np.maximum(allowed, there)
                        needs["wait_bus"] = places
                        if turns.in_bursts:
                            times = _bursts(allowed, origin)
                        else:
                            times = earliest(_turn(allowed, turns.apart), pace)
                        if residual:
                            shared.side.pop(times[::parts] + StoreSequencerTiming.RESIDUAL_CYCLES)
                        if pooled:
                            shared.pooled.pop(times[(columns % repeats == repeats - 1) | (columns == cols - 1)])
                        column += count
                        whole = times
                        if group > 1:   # a beat leaves with its last pixel
                            full = (filled + np.arange(1, count + 1)) % group == 0
                            full[-1] |= count == pixels
                            filled = (filled + count) % group if count < pixels else 0
                            whole = times[full]
                        leaving = earliest(np.maximum(whole + latency, sent), port)
                        self._beats.push(whole)
                        self._beats.pop(leaving)
                        behind = int(whole[-1]) + latency if len(whole) else behind
                        states.pixels(times, needs)
                        first = int(times[0]) if first == NEVER else first
                        time, pixels = int(times[-1]) + pace - 1, pixels - count
                        sent = int(leaving[-1]) + port if len(leaving) else sent
                        self.clock = time
                        if local:
                            shared.kept = np.concatenate([shared.kept, leaving + LocalWriterTiming.LATENCY])
                        else:
                            shared.write_beats += len(leaving)
                        yield None
                    if local:
                        # The next row is taken with this one's last beat.
                        burst = sent - 1
                    else:
                        self._bus_free = sent
                        self.answered = self._answered(sent - port, begin, length)
                        self._responses.append(self.answered)
                self._address_free = burst
                run = max(run + StoreRunsTiming.RUN_CYCLES, self._address_free)
                self._runs_free += 1
            # The registers of the parameters are free once a block's last (or only) use of them is under way.
            used = time - pace + 1 if turns.keep_parameters else first
            self._parameters_free = used + RELEASE_CYCLES + RequantizerTiming.late(config)
        # The last beat leaves the buffer for the write engine's as soon as that has a place for it.
        left = sent - 1 if local else max(behind - FifoTiming.LATENCY,
                                          self._beats.taken(WriteEngineTiming.BUFFER_BEATS) + 1)
        return time if tiles else time - pace + 1, left

    def _answered(self, cycle: int, offset: int, beats: int) -> int:
        """The response to a burst whose last beat is on the bus in a cycle."""
        shared = self.shared
        if shared.dram is None:
            return cycle + shared.latency
        beat_bytes = shared.config.beat_bytes
        return shared.dram.write(cycle, data_base(shared.config) + offset * beat_bytes, beats, beat_bytes)

    def _in_hand(self, index: int, first: int, last: int) -> None:
        late = StoreSequencerTiming.STATE_CYCLES
        self.shared.in_hand(Queue.STORE, index, first + late, last + late)

    def _load(self, opcode: Opcode, index: int, begin: int) -> TimedSteps:
        """Take what an operation loads from the side ring, from the cycle after ``begin`` on; returns that of its last
        beat.
        """
        shared = self.shared
        stage = next(stage for stage in STORE_STAGES if stage.OPCODE == opcode)
        side, cycles, time = shared.side, stage.load_cycles(shared.config), begin
        for _ in range(stage.load_beats(shared.config)):
            while not side.available:
                yield f"what {opcode.name} loads"
            first = max(time + 1, side.next_readable())
            shared.spent(Queue.STORE, "wait_side", index, first - time - 1)
            shared.spent(Queue.STORE, "setup", index, cycles)
            time = first + cycles - 1
            side.pop_one(time)
            yield None
        return time

    def _parameters(self, wanted: int) -> TimedSteps:
        """Take a block's parameters from the side ring; returns the cycle of the last beat."""
        side = self.shared.side
        time = max(wanted, self._parameters_free) - 1
        missing, arrived, taken = PARAMETER_BYTES, np.empty(0, np.int64), np.empty(0, np.int64)
        while missing:
            while not side.available:
                yield "channel parameters"
            count = min(missing, side.available)
            there = side.readable(count)
            times = earliest(np.maximum(there, time + 1))
            side.pop(times)
            arrived, taken = np.concatenate([arrived, there]), np.concatenate([taken, times])
            time, missing = int(times[-1]), missing - count
            yield None
        self._states.parameters(arrived, taken)
        return time
