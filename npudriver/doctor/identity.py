"""Whether the device is the machine of the package."""

from __future__ import annotations

from .check import Bench, CheckError

__all__ = ["identity"]


def identity(bench: Bench) -> str:
    """Raises CheckError for another machine, or none."""
    found = {name: bench.read(name) for name in bench.machine.fingerprint}
    wanted = bench.machine.fingerprint
    wrong = next((name for name in wanted if found[name] != wanted[name]), None)
    if wrong is None:
        return f"an NPU of {bench.machine.macs} MACs, configuration {wanted['config']:#010x}"
    text = f"register {wrong} is {found[wrong]:#010x}, not {wanted[wrong]:#010x}"
    if len(set(found.values())) == 1:
        raise CheckError(text, wrong="nothing answers at the register port: another address, no clock, held in reset, "
                         "or no bitstream", next="compare the address with the block design's, and load the bitstream")
    if wrong == "id":
        swaps = {int.from_bytes(wanted[wrong].to_bytes(4, "little"), "big"): "the bytes of each word are swapped"}
        raise CheckError(text, wrong=swaps.get(found[wrong], "another peripheral is at this address"),
                         next="compare the address and the order of bytes with the block design's")
    raise CheckError(text, wrong="the bitstream is of another configuration or version",
                  next="load the bitstream of this package, or deploy the model again for this machine")
