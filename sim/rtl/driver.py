"""What a board's processor does with the NPU's registers; works over anything that reads and writes 32-bit words."""

from dataclasses import dataclass
from typing import Protocol

from cores.arch.isa import ErrorCode
from cores.arch.registers import COUNTERS, MAGIC, VERSION, Control, Status, address_of
from cores.config import NpuConfig
from cores.errors import NpugenError
from sim.errors import MachineError

__all__ = ["Driver", "DriverError", "Job", "Transport"]

_WORD = 0xFFFFFFFF


class DriverError(NpugenError):
    """The device is not the one this program is for, or is not in a state to take it."""


class Transport(Protocol):
    """32-bit access to the register port; addresses in bytes from its start."""

    def read32(self, address: int) -> int: ...

    def write32(self, address: int, value: int) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Job:
    """One program in memory: bus addresses (multiples of 4096) and sizes. ``timeout``: None keeps the device's own."""

    program: int
    instructions: int
    data: int
    data_beats: int
    write_start: int
    timeout: int | None = None


class Driver:
    """Starts programs and reads their outcome.

    Raises DriverError when the device is no NPU of ``config``.
    """

    def __init__(self, transport: Transport, config: NpuConfig) -> None:
        self.transport, self.config = transport, config
        lanes = config.oc_lanes | config.ic_lanes << 8 | config.nnz_lanes << 16 | config.pixel_lanes << 24
        for name, expected, what in (
            ("id", MAGIC, "the device is no NPU"),
            ("version", VERSION, "the device has another instruction set"),
            ("config", config.digest, "the device was built from another configuration"),
            ("lanes", lanes, "the device has other lanes"),
        ):
            found = self.read(name)
            if found != expected:
                raise DriverError(f"{what}: register {name} is {found:#010x}, not {expected:#010x}")

    def read(self, name: str) -> int:
        return self.transport.read32(address_of(name))

    def write(self, name: str, value: int) -> None:
        self.transport.write32(address_of(name), value)

    def status(self) -> Status:
        return Status(self.read("status"))

    def start(self, job: Job, *, interrupt: bool = True) -> None:
        """Raises DriverError when a program is running."""
        if Status.BUSY in self.status():
            raise DriverError("the device is busy")
        self.write("control", Control.CLEAR)
        for name, value in (("program", job.program), ("data", job.data)):
            self.write(f"{name}_low", value & _WORD)
            self.write(f"{name}_high", value >> 32)
        self.write("program_length", job.instructions)
        self.write("data_beats", job.data_beats)
        self.write("write_start", job.write_start)
        if job.timeout is not None:
            self.write("timeout", job.timeout)
        self.write("irq_enable", int(interrupt))
        self.write("control", Control.START)

    def finish(self) -> dict[str, int]:
        """The counters of a program that has ended; also clears the interrupt.

        Raises MachineError when it ended in an error, DriverError when it has not ended.
        """
        status = self.status()
        if not status & (Status.DONE | Status.ERROR):
            raise DriverError(f"the program has not ended: status is {status!r}")
        counters = self.counters()
        code, index = self.read("error_code"), self.read("error_index")
        self.write("control", Control.CLEAR)
        if Status.ERROR in status:
            raise MachineError(ErrorCode(code), index)
        return counters

    def counters(self) -> dict[str, int]:
        # The low half first: it holds the high one.
        return {name: self.read(f"counter_{name}_low") | self.read(f"counter_{name}_high") << 32 for name in COUNTERS}

    def abort(self) -> None:
        """Stop the program; the device is no longer busy once its bursts have ended, and neither done nor in error."""
        self.write("control", Control.ABORT)
