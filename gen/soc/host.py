"""A host at the serial line of a system: it wakes the memory, fills it, and starts programs.

Works over anything that reads and writes words of the system's bus as LiteX's `RemoteClient` does, and needs nothing of
LiteX itself: what it has to know of the system is in ``system.json``.
"""

import time
from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

import numpy as np

from cores.arch.isa import INSTRUCTION_BYTES
from cores.arch.registers import Status
from cores.errors import NpugenError
from gen.program.program import Program
from sim.rtl.driver import Driver, Job

__all__ = ["Bus", "Host", "HostError"]

#: Words of one request: UARTBone takes up to 255, and an Etherbone record too.
_BURST = 128
#: Where the program lies in memory; the data region is behind it, both on pages.
_PAGE = 4096


class HostError(NpugenError):
    """The system is not the one described, its memory does not hold what is written, or a program does not end."""


class Bus(Protocol):
    """32-bit words at byte addresses, as LiteX's `RemoteClient` has them."""

    def read(self, addr: int, length: int | None = None) -> Any: ...

    def write(self, addr: int, datas: list[int]) -> None: ...


class Host:
    """``description``: the content of ``system.json``."""

    def __init__(self, bus: Bus, description: Mapping[str, Any]) -> None:
        self.bus, self.description = bus, description
        self.registers: Mapping[str, int] = description["registers"]
        self._npu = description["regions"]["npu"]["base"]
        self._memory = description["regions"]["main_ram"]

    # -- registers of the machine (Transport of sim.rtl.driver) --------------------------------------------------

    def read32(self, address: int) -> int:
        return self.bus.read(self._npu + address)

    def write32(self, address: int, value: int) -> None:
        self.bus.write(self._npu + address, [value])

    # -- programs --------------------------------------------------------------------------------------------------

    def load(self, program: Program) -> Job:
        """Put a program and its constants into memory. Raises HostError when they do not fit.

        Raises DriverError when the system's machine is not the one that the program is for.
        """
        Driver(self, program.config)
        code = np.frombuffer(program.code, np.uint8)
        data = -(-(code.size + program.config.beat_bytes) // _PAGE) * _PAGE
        beats = program.data_beats
        if data + beats * program.config.beat_bytes > self._memory["size"]:
            raise HostError(f"program {program.name} and its data do not fit into {self._memory['size']:,} bytes")
        self.write_bytes(0, code)
        self.write_bytes(data, program.image())
        base = self._memory["base"]
        return Job(program=base, instructions=code.size // INSTRUCTION_BYTES, data=base + data, data_beats=beats,
                   write_start=program.write_start)

    def infer(self, program: Program, job: Job, inputs: Mapping[str, np.ndarray], *, patience: float = 60.0) -> int:
        """Run ``job`` on int8 (C, H, W) ``inputs``, by tensor; returns the cycles that the machine has counted.

        ``patience``: seconds until HostError. Raises MachineError when the machine stops with an error.
        """
        image, beat = program.image(), program.config.beat_bytes
        region = job.data - self._memory["base"]
        for tensor, values in inputs.items():
            program.pack_input(image, tensor, values)
            place = program.tensors[tensor]
            first, count = place.offset * beat, place.beats(beat) * beat
            self.write_bytes(region + first, image[first:first + count])
        driver = Driver(self, program.config)
        driver.start(job, interrupt=False)
        end = time.monotonic() + patience
        while not driver.status() & (Status.DONE | Status.ERROR):
            if time.monotonic() > end:
                raise HostError(f"program {program.name} is not done after {patience:g} s")
        return driver.finish()["cycles"]

    def data_region(self, job: Job, beat_bytes: int) -> np.ndarray:
        """uint8, all bytes that ``job`` works on."""
        return self.read_bytes(job.data - self._memory["base"], job.data_beats * beat_bytes)

    # -- memory ---------------------------------------------------------------------------------------------------

    def wake_memory(self) -> None:
        """Bring the memory up, as LiteX's own software does, and try it.

        Raises HostError when it does not hold what is written, as one whose read delays want training may not.
        """
        memory = self.description["memory"]
        for step in memory["start"]:
            self.bus.write(self.registers["sdram_dfii_pi0_address"], [step["address"]])
            self.bus.write(self.registers["sdram_dfii_pi0_baddress"], [step["bank"]])
            self.bus.write(self.registers[step["register"]], [step["value"]])
            if step["register"].endswith("_command"):
                self.bus.write(self.registers[f"{step['register']}_issue"], [1])
            # A clock period is far less than what a serial line takes for a byte.
            time.sleep(step["cycles"] / (self.description["clock_mhz"] * 1e6))
        probe = np.random.default_rng(0).integers(0, 256, 1024, np.uint8)
        self.write_bytes(0, probe)
        if not np.array_equal(self.read_bytes(0, probe.size), probe):
            self._complain()

    def write_bytes(self, offset: int, values: np.ndarray) -> None:
        """uint8, whole words, from byte ``offset`` of the memory on.

        The last word of each burst is read back: writes are not answered, and LiteX's client takes an answer that comes
        late for zeros. Raises HostError when it is another.
        """
        words = np.ascontiguousarray(values, np.uint8).view("<u4").tolist()
        start = self._memory["base"] + offset
        for first in range(0, len(words), _BURST):
            burst = words[first:first + _BURST]
            self.bus.write(start + 4 * first, burst)
            if self.bus.read(start + 4 * (first + len(burst) - 1)) != burst[-1]:
                self._complain()

    def _complain(self) -> NoReturn:
        training = self.description["memory"]["leveling"]
        cause = ": its read delays want training, which is left to a processor" if training else ""
        raise HostError(f"the memory does not hold what is written to it{cause}")

    def read_bytes(self, offset: int, count: int) -> np.ndarray:
        """uint8 (count,), a multiple of four."""
        words: list[int] = []
        for first in range(0, count // 4, _BURST):
            size = min(_BURST, count // 4 - first)
            words += self.bus.read(self._memory["base"] + offset + 4 * first, size)
        return np.array(words, "<u4").view(np.uint8)
