"""Whether the host's own way to the shared memory is sound."""

from __future__ import annotations

from .check import Bench, CheckError
from .difference import difference, pattern

__all__ = ["host_memory"]

_SIZE = 1 << 16


def host_memory(bench: Bench) -> str:
    """Write a pattern and read it back. Raises CheckError. The host's cache can hide what is wrong beyond it."""
    with bench.memory(_SIZE) as buffer:
        wanted = pattern(_SIZE)
        buffer.write(0, wanted)
        found = difference(wanted, buffer.read(0, _SIZE))
        address = buffer.address
        if found:
            raise CheckError(f"memory at {address:#x}: {found}", wrong="the host's way to the shared memory",
                          next="check the region's address and size, and that nothing else uses it")
    if (address + _SIZE - 1) >> bench.machine.address_bits:
        raise CheckError(f"the shared memory is at {address:#x}", wrong=f"the machine's bus has only "
                         f"{bench.machine.address_bits} address bits", next="reserve lower memory")
    return f"{_SIZE >> 10} KiB at {address:#x} hold a pattern"
