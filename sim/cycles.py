"""Time model: how many cycles a program takes, and what each engine waits for, without computing any data.

The engines are processes that talk through FIFOs of time stamps. Each runs ahead as far as the times of the others are
known, so whole series of beats are timed at once. The model follows the hardware's registers
(`sim/timing/latencies.py`).

The order of simulation matters in one case only: a part runs ahead of another that holds it up later. Then instruction
fetch may cut in on the read bus a request too early or too late, and beats of a local store may fall on other cycles of
loads.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction, decode
from cores.arch.isa import INSTRUCTION_BYTES, OPERATIONS, Opcode
from cores.arch.isa_features import missing
from cores.config import NpuConfig

from .errors import MachineError
from .stochastic.streams import shortened
from .timing.compute import Compute
from .timing.dispatch import Dispatcher
from .timing.dram import DramTiming
from .timing.latencies import MEMORY
from .timing.load_requester import Requester, Requests
from .timing.load_writer import Writer
from .timing.state import Process, Shared, Steps
from .timing.store import Store

__all__ = ["MEMORY", "Timing", "cycles_below", "estimate", "estimate_instructions"]


@dataclass(frozen=True, eq=False)
class Timing:
    """Cycles of a program from START to END.

    ``first``, ``last``: int64 (engine, instruction), the first and last cycle with it in hand, -1 for other engines';
    ``counts``: int64 (engine, state, instruction), cycles spent there; engines and states as in
    `cores.arch.registers.ENGINE_STATES`, idle not counted. The same as the trace of `sim.rtl`.
    """

    cycles: int
    read_beats: int
    write_beats: int
    counts: np.ndarray
    first: np.ndarray
    last: np.ndarray


def estimate(config: NpuConfig, code: bytes, *, latency: int = MEMORY, dram: DramTiming | None = None,
             stream_shift: int = 0) -> Timing:
    """Time a program on a memory that answers after ``latency`` cycles and then moves a beat a cycle, or on a ``dram``.

    ``stream_shift``: what the register of that name has.

    Raises MachineError for an illegal instruction before END, a program without END, or one that stands still;
    HazardError for a load of more than the input buffer holds.
    """
    instructions: list[Instruction] = []
    for index in range(len(code) // INSTRUCTION_BYTES):
        if instructions and instructions[-1].opcode == Opcode.END:
            instructions.append(instructions[-1])   # what comes after END is fetched, and nobody decodes it
            continue
        try:
            instructions.append(decode(code[index * INSTRUCTION_BYTES:(index + 1) * INSTRUCTION_BYTES]))
        except ValueError as error:
            raise MachineError(ErrorCode.ILLEGAL, index, str(error)) from None
    return estimate_instructions(config, instructions, latency=latency, dram=dram, stream_shift=stream_shift)


def estimate_instructions(config: NpuConfig, instructions: Sequence[Instruction], *,
                          latency: int = MEMORY, dram: DramTiming | None = None, stream_shift: int = 0) -> Timing:
    """`estimate` of a program that is decoded."""
    shared = Shared(config, _taken(config, instructions, stream_shift), latency, dram)
    cycles = _cycles(shared)
    assert cycles is not None
    return Timing(cycles, shared.bus.beats, shared.write_beats, shared.counts, shared.first, shared.last)


def cycles_below(limit: float, config: NpuConfig, instructions: Sequence[Instruction]) -> int | None:
    """`Timing.cycles` of a decoded program, None from ``limit`` on: which is known long before the end where little
    time is left for other things than the array's work."""
    cycles = _cycles(Shared(config, _taken(config, instructions), MEMORY), limit)
    return cycles if cycles is not None and cycles < limit else None


def _taken(config: NpuConfig, instructions: Sequence[Instruction], stream_shift: int = 0) -> list[Instruction]:
    """The program as the machine understands it. Raises MachineError where it would refuse an instruction."""
    program = []
    seen: set[Opcode] = set()
    for index, instruction in enumerate(instructions):
        opcode = instruction.opcode
        if lack := missing(instruction, config):
            raise MachineError(ErrorCode.ILLEGAL, index, lack)
        program.append(shortened(instruction, stream_shift))
        for needed in OPERATIONS[opcode].after:
            if needed not in seen:
                raise MachineError(ErrorCode.ILLEGAL, index, f"no {needed.name} is in front of it")
        seen.add(opcode)
    return program


def _clock(process: tuple[Process, Steps]) -> float:
    return process[0].clock


def _cycles(shared: Shared, limit: float = math.inf) -> int | None:
    """Run all engines to the end; None as soon as it is certain that it takes ``limit`` cycles."""
    dispatcher, requester, compute = Dispatcher(shared), Requester(shared), Compute(shared)
    parts: list[Process] = [
        dispatcher, requester, Requests(shared, requester), Writer(shared, requester), compute, Store(shared)]
    processes, end = [(part, part.run()) for part in parts], len(shared.program)
    while dispatcher.end is None:
        if compute.clock + compute.to_come >= limit:
            return None
        # The one that is furthest behind goes first, so that the bus is asked nearly in order.
        processes.sort(key=_clock)
        for number, (part, steps) in enumerate(processes):
            # What fetch asks for brings no store before that: a load that waits for them may ask first.
            if number and part is dispatcher and dispatcher.asks and shared.keeps and shared.until < part.clock:
                shared.until = part.clock
                break
            if next(steps, "") is None:
                shared.until = 0
                # And goes on while it still is.
                while not number and part.clock <= processes[1][0].clock and next(steps, "") is None:
                    pass
                break
        else:
            if shared.keeps and shared.until < math.inf:
                shared.until = math.inf
            elif dispatcher.end is None:
                raise MachineError(ErrorCode.TIMEOUT, end, "nothing can move; `sim.functional` says why")
    if dispatcher.end < 0:
        raise MachineError(ErrorCode.NO_END, end, "the program has no END")
    return dispatcher.end + 1
