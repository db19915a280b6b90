"""Time of the load engine's requester, which asks for data ahead of the writer."""

from dataclasses import dataclass

import numpy as np

from cores.arch.axi import MAX_BURST
from cores.arch.instruction import Instruction
from cores.arch.isa import SETTERS, Opcode, Queue
from cores.timing.load import LoadRequesterTiming

from .latencies import LOAD_ARRIVAL
from .state import Shared, Steps

__all__ = ["Handed", "Requester", "Requests"]


def _rows(geometry: Instruction | None, instruction: Instruction) -> tuple[np.ndarray, int]:
    """First beat of every row an instruction loads, and the beats of a row."""
    offset = instruction["offset"]
    match instruction.opcode:
        case Opcode.LOAD_WGT:
            return np.array([offset]), instruction["beats"]
        case Opcode.LOAD_SIDE:
            return offset + np.arange(instruction["rows"]) * instruction["row_pitch"], instruction["cols"]
    assert geometry is not None
    blocks = offset + np.arange(instruction["blocks"])[:, None] * geometry["block_pitch"]
    return (blocks + np.arange(instruction["rows"]) * geometry["row_pitch"]).ravel(), geometry["cols"]


@dataclass(frozen=True)
class Handed:
    """An instruction: when it came to the queue, and from when to when the requester waited for its stores alone."""

    index: int
    there: int
    held_from: int
    held_until: int


@dataclass(frozen=True)
class Request:
    """Beats of the data region that are asked for, from the cycle ``offered`` on."""

    offered: int
    offset: int
    beats: int


class Requester:
    """Asks for the data of each instruction as soon as its stores are in memory and there is room for it."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.clock = 0
        #: Of each instruction handed to the writer.
        self.handed: list[Handed] = []
        #: The request that stands until the bus takes it, and from when on the next may be offered after it. The next
        #: instruction is taken meanwhile.
        self.request: Request | None = None
        self.ready = 0

    def run(self) -> Steps:
        shared = self.shared
        # From when on an instruction may be taken.
        seen_from = free = 0
        geometry: Instruction | None = None
        queue = shared.queues[Queue.LOAD]
        while True:
            while not queue.available or not shared.contexts.room:
                yield "an instruction or room for it"
            index = shared.pending[Queue.LOAD][queue.popped]
            instruction = shared.program[index]
            there = queue.next_readable()
            seen = max(there, seen_from, shared.contexts.next_writable())
            stored = yield from shared.take(Queue.LOAD, Queue.STORE, instruction["stores"])
            accepted = max(seen + LoadRequesterTiming.LOOK, stored + LoadRequesterTiming.LOOK, free)
            queue.pop_one(accepted)
            shared.contexts.push_one(accepted)
            self.handed.append(Handed(index, there, max(seen, free), max(seen, free, stored)))
            self.clock = seen_from = accepted + 1
            yield None
            if instruction.opcode in SETTERS:
                geometry = instruction if instruction.opcode == Opcode.LOAD_SET else geometry
                continue
            first = accepted + LoadRequesterTiming.FIRST_REQUEST
            rows, beats = _rows(geometry, instruction)
            for offset in rows.tolist():
                for begin in range(0, beats, MAX_BURST):
                    count = min(MAX_BURST, beats - begin)
                    while self.request or shared.load_data.room < count:
                        yield "the bus, or room for load data"
                    room = int(shared.load_data.writable(count)[-1]) + LoadRequesterTiming.ROOM_CYCLES - 1
                    self.clock = offered = max(first, self.ready, room)
                    self.request = Request(offered, offset + begin, count)
                    free = offered + LoadRequesterTiming.NEXT_INSTRUCTION
                    yield None


class Requests:
    """The requester's requests on the bus: each is taken when no other is in its way. Until then fetch's go before it,
    also those that are offered later."""

    def __init__(self, shared: Shared, requester: Requester) -> None:
        self.shared, self.requester = shared, requester
        self.clock = 0

    def run(self) -> Steps:
        shared, requester = self.shared, self.requester
        while True:
            while (request := requester.request) is None:
                yield "a request"
            while self.clock < (taken := max(request.offered, shared.bus.free)):
                self.clock = taken
                yield None
            shared.load_data.push(shared.bus.load(taken, request.offset, request.beats) + LOAD_ARRIVAL)
            requester.request, requester.ready = None, taken + LoadRequesterTiming.REQUEST_CYCLES
            self.clock = taken + 1
            yield None
