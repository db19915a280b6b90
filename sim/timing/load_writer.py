"""Time of the load engine's writer, which delivers data in order."""

from collections.abc import Generator

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import SETTERS, Opcode, Queue
from cores.timing.gather import GatheredPathTiming, RunSettingsTiming
from cores.timing.load import LoadDispatchTiming
from cores.timing.turn import CornerTurnTiming, TurnedBiasTiming
from cores.timing.winograd import WinogradLinesTiming

from ..hazards import check_box
from .fifo import NEVER, TimedFifo, earliest
from .load_requester import Handed, Requester
from .load_walk import Walk
from .runs import RowShape, Runs
from .state import Shared, Steps, TimedSteps
from .tiles import TileTimer

__all__ = ["Writer"]

_NONE = np.empty(0, np.int64)


def _width(geometry: Instruction) -> int:
    """Pixels of a row with its padding."""
    return geometry["pad_left"] + geometry["cols"] + geometry["pad_right"]


class Writer:
    """Takes the data in order: to the input buffer with its padding, or to a ring."""

    def __init__(self, shared: Shared, requester: Requester) -> None:
        self.shared, self.requester = shared, requester
        self.walk, self.runs = Walk(), Runs()
        #: When beats of turned blocks went to the ring, the last ones.
        self.beats_left = _NONE
        self.clock = 0

    def run(self) -> Steps:
        shared, engine = self.shared, Queue.LOAD
        geometry: Instruction | None = None
        tiles: Instruction | None = None
        gather: Instruction | None = None
        turn: Instruction | None = None
        turned = 0          # first cycle in which nothing is turned, so that something else may begin
        # What goes to the input buffer passes the gatherer, if there is one.
        gathers, runs = bool(shared.config.gather), self.runs
        behind = GatheredPathTiming.LATENCY - 1 if gathers else 0
        at_head = 0         # first cycle in which the next instruction is seen
        token_free = 0      # and in which it is seen which tokens are left
        idle = 0            # first cycle in which the writer is not at work
        transformed = 0     # and in which the transformer is not
        while True:
            while not shared.contexts.available:
                yield "a load"
            handed = self.requester.handed[shared.contexts.popped]
            index, instruction = handed.index, shared.program[handed.index]
            at_head = max(at_head, shared.contexts.next_readable())
            is_box = instruction.opcode == Opcode.LOAD_ACT
            if not is_box:
                at_head = max(at_head, turned)
            if instruction.opcode in SETTERS:
                seen = max(at_head + LoadDispatchTiming.LOOK, self.clock + 1, runs.settable)
            else:
                announced = runs.announce(at_head) if gathers and is_box and not tiles and not turn else at_head
                seen = max(self.walk.take(announced) + 1 + LoadDispatchTiming.LOOK, self.clock)
                if instruction["post_compute"] and not is_box:
                    seen = max(seen, runs.settable)
            tokens = yield from shared.take(engine, Queue.COMPUTE, instruction["wait_compute"])
            lacked = NEVER      # first cycle in which no token is lacked
            if instruction["wait_compute"]:
                lacked = max(tokens, token_free)
            accepted = max(seen, lacked + LoadDispatchTiming.LOOK)
            if instruction["wait_compute"]:
                token_free = accepted + LoadDispatchTiming.LEAVE + 1
            if is_box:
                assert geometry is not None
                if turn is None:
                    check_box(shared.config, index, geometry, instruction, gather)
                accepted = max(accepted, transformed + LoadDispatchTiming.LOOK)
            # A load's place is free a cycle later than a setting's.
            leaving = 0 if instruction.opcode in SETTERS else LoadDispatchTiming.LEAVE
            shared.contexts.pop_one(accepted + leaving)
            first = max(idle, handed.there)
            self._wait(handed, first, max(at_head, first), lacked, accepted)
            last = done = accepted
            at_head = accepted + 1 + leaving
            if instruction.opcode == Opcode.LOAD_SET:
                geometry, tiles, gather, turn = instruction, None, None, None
                self.clock = accepted
            elif instruction.opcode == Opcode.LOAD_TURN:
                turn = instruction
                self.clock = accepted
            elif instruction.opcode == Opcode.LOAD_WINOGRAD:
                tiles, gather = instruction, None
                self.clock = accepted
            elif instruction.opcode == Opcode.LOAD_GATHER:
                tiles, gather = None, instruction
                last = done = accepted + RunSettingsTiming.GATHER_CYCLES
                self.clock = at_head = last + 1
            elif is_box and turn is not None:
                assert geometry is not None
                last, turned = yield from self._turned(index, geometry, turn, instruction, accepted)
                self.walk.end(geometry["cols"])
                self.clock = last
            elif is_box and tiles is not None:
                assert geometry is not None
                last, done = yield from self._tiles(index, geometry, tiles, instruction, accepted)
                self.walk.end(_width(geometry))
                self.clock, transformed = last, done + 1
            elif is_box:
                assert geometry is not None
                if gather:
                    last, row = yield from self._runs(index, geometry, gather, instruction, accepted)
                else:
                    last, row = (yield from self._box(index, geometry, instruction, accepted)), _width(geometry)
                done = runs.last if gathers else last
                self.walk.end(row)
                self.clock = last
            else:
                ring = shared.weights if instruction.opcode == Opcode.LOAD_WGT else shared.side
                beats = instruction["beats"] if ring is shared.weights else instruction["cols"] * instruction["rows"]
                summed = ring is shared.side and instruction["zero_point"]
                last = yield from self._stream(index, ring, beats, accepted,
                                               TurnedBiasTiming.latency(shared.config) if summed else 0)
                if summed:
                    turned = last + TurnedBiasTiming.cycles(shared.config)
                self.walk.end(beats if ring is shared.weights else instruction["cols"])
                self.clock = last
            if instruction["post_compute"]:
                shared.post(engine, Queue.COMPUTE, max(last, done) + behind)
            idle = last + 1
            shared.in_hand(engine, index, min(first, last), max(last, done if gathers and is_box else last))
            shared.finished[engine] += 1
            shared.idle_from[engine] = max(last + 2, transformed + 1, runs.last + 2) + behind
            yield None

    def _wait(self, handed: Handed, first: int, at_head: int, lacked: int, accepted: int) -> None:
        """Cycles from ``first``, in which nothing else is in hand, until the instruction is ``accepted``."""
        # That stores are lacked shows a cycle later, and no longer when the writer has the instruction.
        stores = max(0, min(handed.held_until + 1, at_head) - max(handed.held_from + 1, first))
        tokens = max(0, lacked - at_head)
        setup = max(0, accepted + 1 - first) - stores - tokens
        for state, cycles in (("wait_store", stores), ("wait_compute", tokens), ("setup", setup)):
            self.shared.spent(Queue.LOAD, state, handed.index, cycles)

    def _box(self, index: int, geometry: Instruction, instruction: Instruction, accepted: int) -> TimedSteps:
        """LOAD_ACT: a pixel a cycle, those of the padding without waiting for data. Returns the last pixel's cycle."""
        left, top = geometry["pad_left"], instruction["pad_top"]
        cols, rows, blocks = geometry["cols"], instruction["rows"], instruction["blocks"]
        width, height = _width(geometry), top + rows + instruction["pad_bottom"]
        total = blocks * height * width
        # Where in the series of pixels the data is.
        data = ((np.arange(blocks)[:, None, None] * height + top + np.arange(rows)[:, None]) * width
                + left + np.arange(cols)).ravel()
        return (yield from self._pixels(index, data, total, max(accepted, self.walk.first - 1),
                                        in_runs=bool(self.shared.config.gather)))

    def _tiles(self, index: int, geometry: Instruction, tiles: Instruction, instruction: Instruction,
               accepted: int) -> Generator[str | None, None, tuple[int, int]]:
        """LOAD_ACT of transformed tiles, by pairs of rows. Returns the last pixel's cycle and the last entry's."""
        left, top, rows, cols = geometry["pad_left"], instruction["pad_top"], instruction["rows"], geometry["cols"]
        width = _width(geometry)
        pairs = (top + rows + instruction["pad_bottom"]) // 2
        timer, time = TileTimer(self.shared.config, tiles["tile_cols"], pairs), max(accepted, self.walk.first - 1)
        for _ in range(instruction["blocks"]):
            for pair in range(pairs):
                has = [top <= row < top + rows for row in (2 * pair, 2 * pair + 1)]
                data = np.concatenate([row * width + left + np.arange(cols) for row in range(2) if has[row]] or [_NONE])
                # The first pixels may wait in front of the lines; the next one comes once the first are written.
                ahead = WinogradLinesTiming.AHEAD
                time = yield from self._pixels(index, data[data < ahead], ahead, time)
                time = yield from self._pixels(
                    index, data[data >= ahead] - ahead, 2 * width - ahead, max(time, timer.writable))
                timer.complete(time + WinogradLinesTiming.LATENCY)
        return time, timer.last

    def _pixels(self, index: int, data: np.ndarray, total: int, time: int, *, in_runs: bool = False) -> TimedSteps:
        """``total`` pixels from the cycle after ``time`` on; ``data``: which of them come from memory; ``in_runs``:
        they pass the gatherer.
        """
        shared, done = self.shared, 0
        while done < total:
            while len(data) and data[0] == done and not shared.load_data.available:
                yield "load data"
            count = min(shared.load_data.available, len(data))
            end = int(data[count]) if count < len(data) else total
            padded = count < end - done
            allowed = arrived = shared.load_data.readable(count)
            if padded:
                allowed = np.full(end - done, NEVER)
                allowed[data[:count] - done] = arrived
            allowed[0] = max(allowed[0], time + 1)
            times = written = shared.around_kept(allowed)
            if in_runs:
                times, written = self.runs.pixel_times(allowed, shared.kept)
            sure = shared.surely(written)
            if not sure:
                yield "stores to the input buffer"
                continue
            # Only as far as it is known which cycles stores take.
            unhindered = (earliest(allowed) if len(shared.kept) else times)[sure - 1]
            times = times[:sure]
            if in_runs:
                self.runs.pixels(written[:sure])
            taken = times
            if padded:
                pixels = data[:count] - done
                taken = times[pixels[pixels < sure]]
            shared.load_data.pop(taken)
            self.walk.meet(times)
            shared.spent(Queue.LOAD, "busy", index, sure)
            shared.spent(Queue.LOAD, "wait_bus", index, int(unhindered) - time - sure)
            shared.spent(Queue.LOAD, "wait_store", index, int(times[-1] - unhindered))
            data, done, time = data[len(taken):], done + sure, int(times[-1])
            self.clock = time
            yield None
        return time

    def _runs(self, index: int, geometry: Instruction, gather: Instruction, instruction: Instruction,
              accepted: int) -> Generator[str | None, None, tuple[int, int]]:
        """LOAD_ACT after LOAD_GATHER. Returns the last beat's cycle, and the beats of a row.

        Row by row: its beats enter the window as they come and as there are places, its runs leave as their beats are
        there.
        """
        shared, shape = self.shared, RowShape.of(self.shared.config, geometry, gather)
        top, rows = instruction["pad_top"], instruction["rows"]
        entered = max(accepted, self.walk.first - 1)
        for row in range(instruction["blocks"] * (height := top + rows + instruction["pad_bottom"])):
            allowed = np.full(shape.beats, NEVER)
            first = shape.left if top <= row % height < top + rows else shape.beats
            at, end = first, min(first + geometry["cols"], shape.beats)
            early = np.maximum(entered + 1 + np.arange(shape.beats), self.runs.places(np.arange(shape.beats)))
            while at < end:
                while not shared.load_data.available:
                    yield "load data"
                count = min(shared.load_data.available, end - at)
                allowed[at:at + count] = shared.load_data.readable(count)
                # Taken no earlier than this; the row's runs are not timed yet.
                shared.load_data.pop(earliest(np.maximum(early, allowed)[at:at + count]))
                at += count
            allowed[0] = max(allowed[0], entered + 1)
            before = max(entered, self.runs.last)
            while True:
                kept = shared.kept = shared.kept[shared.kept.searchsorted(entered):]
                inside, runs = self.runs.times(shape, allowed, kept)
                if shared.certain(int(runs[-1])):
                    break
                yield "stores to the input buffer"
            unhindered = int(self.runs.times(shape, allowed, kept[:0])[1][-1]) if len(kept) else int(runs[-1])
            self.runs.row(shape, runs)
            entered = int(inside[-1])
            work = max(entered, self.runs.last) - before
            least = max(len(shape.needs), shape.beats) + self.runs.last - unhindered
            shared.spent(Queue.LOAD, "busy", index, min(work, least))
            shared.spent(Queue.LOAD, "wait_bus", index, max(0, work - least))
            self.walk.meet(inside)
            self.clock = entered
            yield None
        return entered, shape.beats

    def _turned(self, index: int, geometry: Instruction, turn: Instruction, instruction: Instruction,
                accepted: int) -> Generator[str | None, None, tuple[int, int]]:
        """LOAD_ACT after LOAD_TURN, block by block. Returns the last pixel's cycle, and the first in which all is done.
        """
        shared, config, time = self.shared, self.shared.config, max(accepted, self.walk.first - 1)
        pixels, beats = instruction["rows"] * geometry["cols"], turn["steps"] * config.weight_beats
        for _ in range(instruction["blocks"]):
            # Once those of the block two before are out of the memory.
            recent = beats + CornerTurnTiming.READ
            self.beats_left = np.concatenate([np.full(recent, NEVER), self.beats_left])[-recent:]
            time = yield from self._pixels(index, np.arange(pixels), pixels, max(time, int(self.beats_left[0])))
            first, done = time + CornerTurnTiming.WRITE + CornerTurnTiming.READ, 0
            while done < beats:
                while not shared.weights.room:
                    yield "room in a ring"
                count = min(beats - done, shared.weights.room)
                times = earliest(np.maximum(shared.weights.writable(count), max(first, int(self.beats_left[-1]) + 1)))
                shared.weights.push(times)
                self.beats_left, done = np.concatenate([self.beats_left, times]), done + count
                yield None
        return time, int(self.beats_left[-1]) + CornerTurnTiming.SUMS

    def _stream(self, index: int, ring: TimedFifo, beats: int, accepted: int, bias: int = 0) -> TimedSteps:
        """LOAD_WGT, LOAD_SIDE: as the ring has room. Returns the last beat's cycle.

        ``bias``: cycles in which sums come to a beat's biases, before the next is taken.
        """
        shared, time, free = self.shared, max(accepted, self.walk.first - 1), NEVER
        while beats:
            while not shared.load_data.available or not ring.room:
                yield "load data, or room in a ring"
            count = min(beats, shared.load_data.available, ring.room)
            arrived = shared.load_data.readable(count)
            allowed = np.maximum(arrived, ring.writable(count) - bias)
            allowed[0] = max(allowed[0], time + 1, free)
            times = earliest(allowed, 1 + bias)
            shared.load_data.pop(times)
            ring.push(times + bias)
            self.walk.meet(times)
            before = np.concatenate([[time], times[:-1]])
            lacked = int(np.maximum(arrived - before - 1, 0).sum())
            shared.spent(Queue.LOAD, "busy", index, count)
            shared.spent(Queue.LOAD, "wait_bus", index, lacked)
            shared.spent(Queue.LOAD, "wait_ring", index, int(times[-1]) - time - count - lacked)
            beats, time, free = beats - count, int(times[-1]), int(times[-1]) + 1 + bias
            self.clock = time
            yield None
        return time
