"""The register file of a device: identity, one program at a time, its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Protocol

from .errors import DeviceError
from .machine import Machine

__all__ = ["LIMIT_REGISTERS", "Job", "RegisterPort", "Registers"]

_WORD = 0xFFFFFFFF
_DIFFERENCES = {
    "id": "the device is no NPU",
    "version": "the device has another instruction set",
    "config": "the device was built from another configuration",
    "lanes": "the device has other lanes",
}


#: What a machine with limits has to set them.
LIMIT_REGISTERS = frozenset({"limit_lock", "limit_first_low", "limit_first_high", "limit_last_low", "limit_last_high"})


class RegisterPort(Protocol):
    """32-bit access; addresses in bytes from the start of the register port."""

    def read32(self, address: int) -> int: ...

    def write32(self, address: int, value: int) -> None: ...


@dataclass(frozen=True)
class Job:
    """A program in memory: bus addresses, and sizes in instructions and beats.

    ``timeout``: cycles without progress until the machine gives up; None keeps what the device has. ``stream_shift``:
    streams are shorter by so many powers of two, in a machine that has any. ``region``: first and last byte of the
    memory that holds both, at whole pages, of a machine with limits.
    """

    program: int
    instructions: int
    data: int
    data_beats: int
    write_start: int
    timeout: int | None = None
    stream_shift: int = 0
    region: tuple[int, int] | None = None


class Registers:
    """Starts programs and reads their outcome, over any port. Raises DeviceError when it is no port of ``machine``."""

    def __init__(self, port: RegisterPort, machine: Machine) -> None:
        self.port, self.machine = port, machine
        bits = machine.status
        self.busy, self.done, self.error = bits["BUSY"], bits["DONE"], bits["ERROR"]
        #: Whether the machine has limits.
        self.has_limits = LIMIT_REGISTERS <= machine.registers.keys()
        self._confined: tuple[int, int] | None = None
        self.identify()

    def identify(self) -> None:
        """After a reset, too. Raises DeviceError unless the device is the machine that is expected."""
        self._confined = None
        for name, expected in self.machine.fingerprint.items():
            found = self.read(name)
            if found != expected:
                raise DeviceError(f"{_DIFFERENCES.get(name, 'the device is another one')}: register {name} is "
                                  f"{found:#010x}, not {expected:#010x}",
                                  code="other-device", register=name, found=found, expected=expected)

    def read(self, name: str) -> int:
        return self.port.read32(self.machine.registers[name])

    def write(self, name: str, value: int) -> None:
        self.port.write32(self.machine.registers[name], value)

    def command(self, name: str) -> None:
        """START, ABORT or CLEAR."""
        self.write("control", self.machine.control[name])

    def status(self) -> int:
        """Bits of ``machine.status``. Raises DeviceError for bits that no machine has: it is off, or unreachable."""
        value = self.read("status")
        if value & ~(self.busy | self.done | self.error):
            raise DeviceError(f"the device does not answer: register status is {value:#010x}", code="no-answer")
        return value

    def start(self, job: Job, *, interrupt: bool = True) -> None:
        """Raises DeviceError when a program is running, or is to shorten streams that the device does not have."""
        has_streams = "stream_shift" in self.machine.registers
        if job.stream_shift and not has_streams:
            raise DeviceError("the device has no streams that could be shorter", code="no-streams")
        if self.status() & self.busy:
            raise DeviceError("the device is busy", code="device-busy")
        self.command("CLEAR")
        if job.region is not None:
            self.confine(*job.region)
        for name, value in (("program", job.program), ("data", job.data)):
            self.write(f"{name}_low", value & _WORD)
            self.write(f"{name}_high", value >> 32)
        self.write("program_length", job.instructions)
        self.write("data_beats", job.data_beats)
        self.write("write_start", job.write_start)
        if job.timeout is not None:
            self.write("timeout", job.timeout)
        if has_streams:
            self.write("stream_shift", job.stream_shift)
            if self.read("stream_shift") != job.stream_shift:
                raise DeviceError(f"streams cannot be shorter by {job.stream_shift} powers of two", code="no-streams")
        self.write("irq_enable", int(interrupt))
        self.command("START")

    def confine(self, first: int, last: int) -> None:
        """Let the machine reach no other bytes than ``first`` to ``last``, both at the ends of pages, until `release`.

        The machine must be at rest. A machine without limits stays as it is, and so do limits that another process
        keeps to itself: it has the page of their registers, so that writes there do nothing. Raises DeviceError where
        those that it has locked leave this memory out.
        """
        if not self.has_limits or self._confined == (first, last):
            return
        if self.status() & self.busy:   # whose limits stand as they are
            raise DeviceError("the device is busy", code="device-busy")
        self._confined = None
        self.write("limit_lock", 0)
        if not self.read("limit_lock"):
            for name, value in (("first", first), ("last", last)):
                self.write(f"limit_{name}_low", value & _WORD)
                self.write(f"limit_{name}_high", value >> 32)
            self.write("limit_lock", 1)
        if self.read("limit_lock"):     # else they cannot be seen either, and the machine says if they are too narrow
            low, high = (self.read(f"limit_{name}_low") | self.read(f"limit_{name}_high") << 32
                         for name in ("first", "last"))
            if not low <= first <= last <= high:
                raise DeviceError(f"memory {first:#x} to {last:#x} is not within the device's limits, {low:#x} to "
                                  f"{high:#x}, which another process has locked", code="outside-limits")
        self._confined = first, last

    def release(self, first: int, last: int) -> None:
        """Let the machine reach nothing, if these are its limits. It must be at rest."""
        if self._confined == (first, last):
            self._confined = None
            self.write("limit_lock", 0)

    def counter(self, name: str) -> int:
        # The low half first: it holds the high one.
        low = self.read(f"counter_{name}_low")
        return low | self.read(f"counter_{name}_high") << 32

    def counters(self) -> Mapping[str, int]:
        return {name: self.counter(name) for name in self.machine.counters}

    def finish(self) -> tuple[int, int]:
        """(error code, index of the instruction) of a program that has ended; (0, 0) if all went well.

        Also clears the interrupt. Raises DeviceError when it has not ended.
        """
        status = self.status()
        if not status & (self.done | self.error):
            raise DeviceError(f"the program has not ended: register status is {status}", code="device-busy")
        failure = (self.read("error_code"), self.read("error_index")) if status & self.error else (0, 0)
        self.command("CLEAR")
        return failure
