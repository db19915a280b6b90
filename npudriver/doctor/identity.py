"""Whether the device is the machine of the package."""

from __future__ import annotations

from .address_lines import seen_elsewhere, shadows
from .check import Bench, CheckError

__all__ = ["identity"]

_LINES = "compare the address bus of the register port with the block design's, line by line"
#: Of lines whose registers without them are not those that identify the machine.
_AT_ONE = "or an address line of it is stuck at 1"


def identity(bench: Bench) -> str:
    """Raises CheckError for another machine, or none."""
    found = {name: bench.read(name) for name in bench.machine.fingerprint}
    wanted = bench.machine.fingerprint
    wrong = next((name for name in wanted if found[name] != wanted[name]), None)
    where = bench.machine.registers
    if wrong is None:
        _look_for_shadows(bench)
        return f"an NPU of {bench.machine.macs} MACs, configuration {wanted['config']:#010x}"
    text = f"register {wrong} is {found[wrong]:#010x}, not {wanted[wrong]:#010x}"
    if len(set(found.values())) == 1:
        raise CheckError(text, wrong="nothing answers at the register port: another address, no clock, held in reset, "
                         f"no bitstream, {_AT_ONE}", next="compare the address with the block design's, and load the "
                         "bitstream")
    line = seen_elsewhere({where[name]: wanted[name] for name in wanted}, {where[name]: found[name] for name in wanted})
    if line:
        raise CheckError(text, wrong=f"{line}, of reads", next=_LINES)
    if wrong == "id":
        swaps = {int.from_bytes(wanted[wrong].to_bytes(4, "little"), "big"): "the bytes of each word are swapped"}
        raise CheckError(text, wrong=swaps.get(found[wrong], f"another peripheral is at this address, {_AT_ONE}"),
                         next="compare the address and the order of bytes with the block design's")
    raise CheckError(text, wrong="the bitstream is of another configuration or version",
                  next="load the bitstream of this package, or deploy the model again for this machine")


def _look_for_shadows(bench: Bench) -> None:
    """Raises CheckError where the identifying registers are seen once more, in place of others. It only reads."""
    machine = bench.machine
    known = {machine.registers[name]: value for name, value in machine.fingerprint.items()}
    for line, places in shadows(list(machine.registers.values()), list(known)).items():
        if all(bench.backend.read32(at) == value for at, value in zip(places, known.values())):
            raise CheckError(f"the identifying registers are at {places[0]:#x}, too", wrong=f"address line {line} of "
                             "the register port is stuck at 0, of reads", next=_LINES)
