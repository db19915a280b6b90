"""Runs a whole program on the simulated Verilog, as a board would."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cores.arch.error_codes import ErrorCode
from cores.arch.isa import INSTRUCTION_BYTES
from cores.arch.registers import BASE_ALIGNMENT, Status
from sim.errors import MachineError
from sim.timing.dram import PROGRAM_BASE, data_base

from .driver import Driver, Job
from .machine import ProtocolError, RtlMachine, RunStatus, Stats, Trace
from .standstill import why_nothing_moves

__all__ = ["RtlResult", "data_base", "run_program"]

#: Cycles between two progress calls.
_SLICE = 100_000


@dataclass(frozen=True, eq=False)
class RtlResult:
    """Outcome of a program.

    ``cycles``: from the START write to the interrupt. ``counters``: the machine's own (cores/arch/registers.py).
    ``image``: uint8, the data region afterwards. ``stats``: what the memory saw. ``seconds``: of simulation.
    """

    cycles: int
    counters: dict[str, int]
    trace: Trace
    image: np.ndarray
    stats: Stats
    seconds: float


def run_program(machine: RtlMachine, code: bytes, image: np.ndarray, *, write_start: int, timeout: int | None = None,
                limit: int = 10_000_000_000, progress: Callable[[int], None] | None = None,
                stream_shift: int = 0) -> RtlResult:
    """Run ``code`` (instructions of 16 bytes) over ``image``, the data region (uint8, whole beats; copied).

    ``machine`` keeps its bus and faults. ``write_start`` in beats. ``progress`` is called with the cycles so far.
    ``stream_shift``: what goes to the register of that name.

    Raises:
        MachineError: the machine stops with an error; TIMEOUT says what each queue lacks. A machine whose bus still
            owes answers stays busy until it has them.
        ProtocolError: it breaks a bus rule, writes outside its region, leaves a burst unfinished, or is not done after
            ``limit`` cycles.
        ValueError: the image is not whole beats.
    """
    config = machine.config
    if image.size % config.beat_bytes:
        raise ValueError(f"the data region must be whole beats of {config.beat_bytes} bytes, not {image.size} bytes")
    program = np.zeros(-(-len(code) // config.beat_bytes) * config.beat_bytes, np.uint8)
    program[:len(code)] = np.frombuffer(code, np.uint8)
    image = np.ascontiguousarray(image, np.uint8).copy()
    instructions, base = len(code) // INSTRUCTION_BYTES, data_base(config)
    machine.map_memory(
        {PROGRAM_BASE: program, base: image},
        writable_from={PROGRAM_BASE: program.size, base: write_start * config.beat_bytes},
    )
    trace = machine.begin(instructions)
    driver = Driver(machine, config)
    began = time.perf_counter()
    driver.start(Job(
        program=PROGRAM_BASE, instructions=instructions, data=base, data_beats=image.size // config.beat_bytes,
        write_start=write_start, timeout=timeout, stream_shift=stream_shift,
        region=(PROGRAM_BASE, base + -(-image.size // BASE_ALIGNMENT) * BASE_ALIGNMENT - 1),
    ))
    cycles = 0
    while machine.run(min(_SLICE, limit - cycles)) is not RunStatus.INTERRUPT:
        cycles += _SLICE
        if cycles >= limit:
            raise ProtocolError(f"the program is not done after {limit} cycles", code="not-done", limit=limit)
        if progress:
            progress(cycles)
    seconds = time.perf_counter() - began
    # A machine that is still busy with an error to report says itself that its bus is silent.
    owed = Status.BUSY in driver.status()
    error = None
    try:
        counters = driver.finish()
    except MachineError as caught:
        error = caught
    stats = machine.stats
    if stats.in_flight and not owed:
        raise ProtocolError(f"the machine is done with {stats.in_flight} bursts under way")
    if stats.stray_writes:
        raise ProtocolError(f"{stats.stray_writes} bursts were written outside the writable region", code="stray-write")
    if error and error.cause is ErrorCode.TIMEOUT:
        reason = why_nothing_moves(code, machine.standing, unanswered=stats.in_flight)
        raise MachineError(error.cause, error.index, reason)
    if error:
        raise error
    assert stats.cycles is not None
    return RtlResult(stats.cycles, counters, trace, image, stats, seconds)
