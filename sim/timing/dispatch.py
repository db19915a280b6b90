"""Time of instruction fetch and dispatch."""

import numpy as np

from cores.arch.isa import INSTRUCTION_BYTES, Opcode, Queue
from cores.timing.control import InstructionFetchTiming, MachineControlTiming

from .fifo import NEVER
from .latencies import FETCH_ARRIVAL
from .state import ENGINES, Shared, Steps

__all__ = ["Dispatcher"]


class Dispatcher:
    """Fetches the program and hands it out in order."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.clock: float = 0
        #: The cycle of END; None until then.
        self.end: int | None = None
        #: The next step is a request to the bus.
        self.asks = False
        beat_bytes = shared.config.beat_bytes
        #: Beats of an instruction, instructions of a beat, and beats of the program.
        self._halves, self._per_beat = max(1, INSTRUCTION_BYTES // beat_bytes), max(1, beat_bytes // INSTRUCTION_BYTES)
        self._total = -(-len(shared.program) // self._per_beat) * self._halves
        #: When each request's beats are in the buffer, when each beat's place was given back, the last request.
        self._arrivals: list[np.ndarray] = []
        self._given_back: list[int] = []
        self._offered = MachineControlTiming.START_CYCLES - 1

    def _ask(self) -> Steps:
        """Make the requests that there is room for, which is two. Each is made when it is known, for loads after it
        make way; so does a load of the same cycle."""
        size, given_back = InstructionFetchTiming.REQUEST_BEATS, self._given_back
        while (asked := len(self._arrivals) * size) < self._total and (freed := asked - size) <= len(given_back):
            self._offered = max(self._offered, given_back[freed - 1] if freed > 0 else 0)
            self._offered += InstructionFetchTiming.REQUEST_CYCLES
            self.clock, self.asks = self._offered - 0.5, True
            yield None
            self.asks = False
            self._offered, arrivals = self.shared.bus.fetch(self._offered, min(size, self._total - asked))
            self._arrivals.append(arrivals + FETCH_ARRIVAL)
            yield None

    def run(self) -> Steps:
        shared, halves = self.shared, self._halves
        time = MachineControlTiming.START_CYCLES - InstructionFetchTiming.DISPATCH_CYCLES
        yield from self._ask()
        for index, instruction in enumerate(shared.program):
            request, within = divmod(index // self._per_beat * halves + halves - 1,
                                     InstructionFetchTiming.REQUEST_BEATS)
            there = int(self._arrivals[request][within])
            if index % self._per_beat == self._per_beat - 1:
                self._given_back += [max(there, time + half) for half in range(halves)]
                yield from self._ask()
            time = max(there + InstructionFetchTiming.WORD_CYCLES + 1,
                       time + InstructionFetchTiming.DISPATCH_CYCLES + halves - 1)
            if instruction.opcode.queue == Queue.CONTROL:
                while any(shared.finished[engine] < len(shared.pending[engine]) for engine in ENGINES):
                    yield "all engines to be idle"
                time = max(time, max(shared.idle_from.values()) + InstructionFetchTiming.CALM_CYCLES - 1)
                if instruction.opcode == Opcode.END:
                    self.end = time
                    yield None
                    return
            else:
                queue = shared.queues[instruction.opcode.queue]
                while not queue.room:
                    yield "room in a queue"
                time = max(time, queue.next_writable() + InstructionFetchTiming.ROOM_CYCLES)
                queue.push_one(time)
                shared.pending[instruction.opcode.queue].append(index)
            self.clock = time
            yield None
        self.end = NEVER
