"""Time of instruction fetch and dispatch."""

from cores.arch.isa import INSTRUCTION_BYTES, Opcode, Queue
from cores.control.instruction_fetch import InstructionFetch
from cores.control.machine_control import MachineControl

from .fifo import NEVER
from .latencies import FETCH_ARRIVAL
from .state import ENGINES, Shared, Steps

__all__ = ["Dispatcher"]


class Dispatcher:
    """Fetches the program and hands it out in order."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.clock = 0
        #: The cycle of END; None until then.
        self.end: int | None = None

    def run(self) -> Steps:
        shared = self.shared
        beat_bytes = shared.config.beat_bytes
        request = InstructionFetch.REQUEST_BEATS
        halves = max(1, INSTRUCTION_BYTES // beat_bytes)    # beats of an instruction
        per_beat = max(1, beat_bytes // INSTRUCTION_BYTES)  # instructions of a beat
        total = -(-len(shared.program) // per_beat) * halves
        arrivals: list[int] = []                            # when each request's first beat is in the buffer
        given_back: list[int] = []                          # when each beat's place was
        offered = MachineControl.START_CYCLES - 1
        time = MachineControl.START_CYCLES - InstructionFetch.DISPATCH_CYCLES
        for index, instruction in enumerate(shared.program):
            beat = index // per_beat * halves + halves - 1
            # There is room for two requests.
            while len(arrivals) * request <= beat:
                freed = (len(arrivals) - 1) * request
                offered = max(offered, given_back[freed - 1] if freed > 0 else 0) + InstructionFetch.REQUEST_CYCLES
                count = min(request, total - len(arrivals) * request)
                arrivals.append(shared.bus.fetch(offered, count) + FETCH_ARRIVAL)
            there = arrivals[beat // request] + beat % request
            if index % per_beat == per_beat - 1:
                given_back += [max(there, time + half) for half in range(halves)]
            time = max(there + InstructionFetch.WORD_CYCLES + 1,
                       time + InstructionFetch.DISPATCH_CYCLES + (halves > 1))
            if instruction.opcode.queue == Queue.CONTROL:
                while any(shared.finished[engine] < len(shared.pending[engine]) for engine in ENGINES):
                    yield "all engines to be idle"
                time = max(time, max(shared.idle_from.values()) + InstructionFetch.CALM_CYCLES - 1)
                if instruction.opcode == Opcode.END:
                    self.end = time
                    yield None
                    return
            else:
                queue = shared.queues[instruction.opcode.queue]
                while not queue.room:
                    yield "room in a queue"
                time = max(time, queue.next_writable())
                queue.push_one(time)
                shared.pending[instruction.opcode.queue].append(index)
            self.clock = time
            yield None
        self.end = NEVER
