"""Whether the machine fetches a program from the shared memory, and ends it with an interrupt."""

from __future__ import annotations

from typing import Callable

import numpy as np

from ..registers import Registers
from .check import Bench, CheckError
from .difference import SWAPS, swapped
from .running import BUSY, execute

__all__ = ["fetch", "interrupt"]

#: An interrupt may be reported without a reason; not so often in a row.
_STRAY = 3
#: Seconds in which an interrupt that is still up is reported.
_AGAIN = 1e-3


def _program(bench: Bench) -> np.ndarray:
    """END, filled up to 64 bytes at least."""
    end = next(code for code, name in bench.machine.operations.items() if name == "END")
    data = np.zeros(max(64, bench.machine.beat_bytes), np.uint8)
    data[0] = end
    return data


def _run(bench: Bench, code: np.ndarray, *, enable: bool,
         then: Callable[[Registers], None] = lambda registers: None) -> str:
    """Run a program of one instruction, see `execute`."""
    return execute(bench, code, 1, np.zeros(0, np.uint8), bench.machine.alignment // bench.machine.beat_bytes,
                   enable=enable, then=lambda registers, region: then(registers))


def fetch(bench: Bench) -> str:
    """Run a program of END alone, polled. Raises CheckError that tells by which order of bytes it would have run."""
    code = _program(bench)
    outcome = _run(bench, code, enable=False)
    if not outcome:
        return "the machine fetched a program of END and ended it"
    if outcome in (BUSY, "TIMEOUT"):
        raise CheckError("the machine started and does not end", wrong="a channel of its memory port never answers",
                         next="check clock, reset and connection of the memory port, and the interconnect after it")
    if outcome.startswith(("READ", "WRITE")):
        raise CheckError(f"the machine stopped with {outcome}", wrong="the bus has no memory at the address that the "
                         "host calls it by", next="check the region's bus address and the memory port's address map")
    for swap in SWAPS:
        if not _run(bench, swapped(code, swap), enable=False):
            raise CheckError(f"the machine stopped with {outcome}, and runs the program with {swap} swapped",
                          wrong=f"the memory port swaps {swap}", next="mend the order of bytes in the interconnect or "
                          "in its width converter")
    raise CheckError(f"the machine stopped with {outcome} at a program of END", wrong="the machine reads other bytes "
                     "than the host wrote: the cache is not written back, or the address leads to other memory",
                     next="check that the back end flushes the cache, and the region's bus address")


def interrupt(bench: Bench) -> str:
    """Raise the interrupt, and drop it. Raises CheckError."""
    if not bench.backend.has_interrupt:
        return "there is none; the driver polls"
    raised: list[bool] = []

    def watch(registers: Registers) -> None:
        raised.append(bench.backend.wait_interrupt(0.1))

    _run(bench, _program(bench), enable=True, then=watch)
    if not any(raised):
        raise CheckError("the program has ended and no interrupt came", wrong="the interrupt line is stuck at 0 or not "
                         "connected, or its number is another", next="compare the interrupt's number with the device "
                         "tree's; until then open the device without interrupt")
    if all(bench.backend.wait_interrupt(_AGAIN) for _ in range(_STRAY)):
        raise CheckError("the interrupt stays after it was cleared", wrong="the interrupt line is stuck at 1, is of "
                         "the other polarity, or is another device's", next="declare it level-sensitive, active high")
    return "raised at the end of a program, and dropped"
