"""Whether the machine stands still, as a busy one takes no registers."""

from __future__ import annotations

from ..registers import Registers
from ..settling import settles
from .check import Bench, CheckError

__all__ = ["at_rest"]


def at_rest(bench: Bench) -> str:
    """Stop what another has left running. Raises CheckError where it does not stop."""
    registers = Registers(bench.backend, bench.machine)
    busy = registers.status() & registers.busy
    if busy:
        registers.command("ABORT")
        if not settles(bench.backend, registers) and not bench.backend.reset():
            raise CheckError("the machine is busy and does not stop", wrong="its bus owes answers to a program that "
                             "another has started", next="load the bitstream again")
    registers.command("CLEAR")
    return "a program that was running has been stopped" if busy else "no program is running"
