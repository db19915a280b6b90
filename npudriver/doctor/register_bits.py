"""Whether registers hold what is written."""

from __future__ import annotations

from .address_lines import lost_writes
from .check import Bench, CheckError

__all__ = ["register_bits"]

#: Registers of 32 plain bits that start nothing.
_PLAIN = ("data_beats", "write_start", "timeout")
#: Two values of registers that start nothing, which differ in all bits that these have. Were they to go to the control
#: register by a stuck address line, they would be no command.
_CHANGES = {name: (0x5A5A5000, 0xA5A5A000) for name in ("program_low", "program_length", "data_low", *_PLAIN)}


def register_bits(bench: Bench) -> str:
    """Walk a one and a zero through some registers, and leave them as they were. Raises CheckError."""
    before = {name: bench.read(name) for name in _CHANGES}
    try:
        _write_everywhere(bench)
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


def _write_everywhere(bench: Bench) -> None:
    """Raises CheckError where writes arrive at some registers alone, as an address line decides."""
    arrived = {}
    for name, values in _CHANGES.items():
        found = []
        for value in values:
            bench.write(name, value)
            found.append(bench.read(name))
        arrived[name] = found[0] != found[1]
    line = lost_writes({bench.machine.registers[name]: here for name, here in arrived.items()})
    if line:
        lost = next(name for name, here in arrived.items() if not here)
        raise CheckError(f"writes of register {lost}, and not of all others, go elsewhere", wrong=f"{line}, of writes",
                         next="compare the address bus of the register port with the block design's, line by line")


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
