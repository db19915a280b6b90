"""The host's end of a system of LiteX: it wakes the memory, and makes sure of what it writes.

Works over anything that reads and writes words of the system's bus as LiteX's `RemoteClient` does, and needs nothing of
LiteX itself: what it has to know of the system is in ``system.json``. Programs are run by the driver on top of it.
"""

import time
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from cores.errors import NpugenError
from npudriver.backends.remote import Client, RemoteBackend
from npudriver.windows import Windows

__all__ = ["HostError", "SystemClient", "windows_of"]

_PROBE_BYTES = 1024


class HostError(NpugenError):
    """The memory does not hold what is written to it."""

    code = "system-memory"


def windows_of(description: Mapping[str, Any]) -> Windows:
    """Where the machine and the memory are. The machine sees memory where the host does."""
    memory = description["regions"]["main_ram"]
    return Windows(registers=description["regions"]["npu"]["base"], memory=memory["base"], size=memory["size"],
                   bus=memory["base"])


class SystemClient:
    """A connection for the driver's remote back end, by way of ``bus``. ``description``: what is in ``system.json``."""

    def __init__(self, bus: Client, description: Mapping[str, Any]) -> None:
        self._bus, self._description = bus, description
        self._windows = windows_of(description)

    def read(self, addr: int, length: int) -> Any:
        return self._bus.read(addr, length)

    def write(self, addr: int, datas: list[int]) -> None:
        """The last word in memory is read back: writes are not answered, and LiteX's client takes an answer that comes
        late for zeros. Raises HostError when it is another.
        """
        self._bus.write(addr, datas)
        last = addr + 4 * (len(datas) - 1)
        if 0 <= last - self._windows.memory < self._windows.size and self._bus.read(last, 1)[0] != datas[-1]:
            self._complain()

    def close(self) -> None:
        self._bus.close()

    def wake_memory(self) -> None:
        """Bring the memory up, as LiteX's own software does, and try it.

        Raises HostError when it does not hold what is written, as one whose read delays want training may not.
        """
        registers = self._description["registers"]
        for step in self._description["memory"]["start"]:
            self._bus.write(registers["sdram_dfii_pi0_address"], [step["address"]])
            self._bus.write(registers["sdram_dfii_pi0_baddress"], [step["bank"]])
            self._bus.write(registers[step["register"]], [step["value"]])
            if step["register"].endswith("_command"):
                self._bus.write(registers[f"{step['register']}_issue"], [1])
            # A clock period is far less than what a serial line takes for a byte.
            time.sleep(step["cycles"] / (self._description["clock_mhz"] * 1e6))
        probe = np.random.default_rng(0).integers(0, 256, _PROBE_BYTES, np.uint8)
        buffer = RemoteBackend(self, self._windows).allocate(probe.size, 4)
        buffer.write(0, probe)
        if not np.array_equal(buffer.read(0, probe.size), probe):
            self._complain()

    def _complain(self) -> NoReturn:
        training = self._description["memory"]["leveling"]
        cause = ": its read delays want training, which is left to a processor" if training else ""
        raise HostError(f"the memory does not hold what is written to it{cause}")
