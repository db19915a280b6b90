"""Whether registers hold what is written."""

from __future__ import annotations

from .check import Bench, CheckError

__all__ = ["register_bits"]

#: Registers of 32 plain bits that start nothing.
_PLAIN = ("data_beats", "write_start", "timeout")


def register_bits(bench: Bench) -> str:
    """Walk a one and a zero through some registers, and leave them as they were. Raises CheckError."""
    before = {name: bench.read(name) for name in _PLAIN}
    try:
        for name in _PLAIN:
            _walk(bench, name)
        for number, name in enumerate(_PLAIN):
            bench.write(name, 0x5A5A0000 + number)
        for number, name in enumerate(_PLAIN):
            if bench.read(name) != 0x5A5A0000 + number:
                raise CheckError(f"register {name} is {bench.read(name):#010x} after others were written",
                              wrong="several addresses lead to one register: address lines of the register port",
                              next="compare the address range of the port, 4 KiB, with the block design's")
    finally:
        for name, value in before.items():
            bench.write(name, value)
    return f"{len(_PLAIN)} registers hold every bit"


def _walk(bench: Bench, name: str) -> None:
    low = high = 0xFFFFFFFF     # bits that were never one, and those that were never zero
    wrong = ""
    for bit in range(32):
        for value in (1 << bit, 0xFFFFFFFF ^ 1 << bit):
            bench.write(name, value)
            found = bench.read(name)
            low, high = low & ~found, high & found
            if found != value and not wrong:
                wrong = f"register {name} is {found:#010x} after {value:#010x} was written"
    if not wrong:
        return
    if low | high == 0xFFFFFFFF:
        raise CheckError(wrong, wrong="registers do not hold what is written: writes do not arrive, or the machine "
                         "is in reset", next="check reset, the port's clock, and that its write channels are wired")
    stuck = [f"bit {bit} is stuck at {int(high >> bit & 1)}" for bit in range(32) if (low | high) >> bit & 1]
    raise CheckError(wrong, wrong=", ".join(stuck) or "bits flip on their way: the register port's clock is too fast",
                     next="check the data lines of the register port, and timing at its clock")
