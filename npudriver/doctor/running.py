"""A program of a check: into memory, started, waited for, taken out again."""

from __future__ import annotations

from typing import Callable

import numpy as np

from ..backend import Buffer, PartBuffer
from ..registers import Job, Registers
from ..settling import settles
from .check import Bench

__all__ = ["BUSY", "execute"]

#: Outcome of a program that has not ended.
BUSY = "BUSY"
#: Cycles without progress until the machine gives up, of a small program.
_PROGRESS = 50_000


def execute(bench: Bench, code: np.ndarray, instructions: int, data: np.ndarray, data_beats: int, write_start: int = 0,
            *, enable: bool = False, then: Callable[[Registers, Buffer], None] = lambda registers, region: None) -> str:
    """Run a program, polled: "" or the name of the error it ended with, `BUSY` where it did not.

    ``code``, ``data``: uint8, of the program and of its data region from its beginning on. ``enable``: the interrupt.
    ``then``: called with the data region where it has ended, before its traces are cleared.
    """
    machine, backend = bench.machine, bench.backend
    registers = Registers(backend, machine)
    page = machine.alignment
    first = -(-code.size // page) * page
    with bench.memory(first + -(-data_beats * machine.beat_bytes // page) * page) as memory:
        memory.write(0, code)
        if data.size:
            memory.write(first, data)
        region = memory.address, memory.address + memory.size - 1
        registers.start(Job(memory.address, instructions, memory.address + first, data_beats, write_start, _PROGRESS,
                            region=region), interrupt=enable)
        deadline = backend.time() + bench.patience
        while registers.status() & registers.busy:
            if backend.time() >= deadline:
                bench.witness()
                registers.command("ABORT")
                if not settles(backend, registers):
                    backend.reset()
                return BUSY
            backend.pause(1e-4)
        number = registers.read("error_code") if registers.status() & registers.error else 0
        if number:
            bench.witness()
        then(registers, PartBuffer(memory, first, memory.size - first))
        registers.command("CLEAR")
        registers.release(*region)
    known = machine.errors.get(number)
    return "" if not number else known.name if known else f"error {number}"
