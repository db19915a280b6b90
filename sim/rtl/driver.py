"""The driver's registers for simulations, which speak of errors as the simulators do."""

from cores.arch.error_codes import error_code
from cores.arch.registers import Status
from cores.config import NpuConfig
from cores.device import driver_machine
from npudriver.errors import DriverError
from npudriver.registers import Job, RegisterPort, Registers
from sim.errors import MachineError

__all__ = ["Driver", "DriverError", "Job", "RegisterPort"]


class Driver:
    """Starts programs and reads their outcome. Raises DriverError when the device is no NPU of ``config``."""

    def __init__(self, port: RegisterPort, config: NpuConfig) -> None:
        self.registers = Registers(port, driver_machine(config))

    def read(self, name: str) -> int:
        return self.registers.read(name)

    def status(self) -> Status:
        return Status(self.registers.status())

    def start(self, job: Job, *, interrupt: bool = True) -> None:
        """Raises DriverError when a program is running."""
        self.registers.start(job, interrupt=interrupt)

    def finish(self) -> dict[str, int]:
        """The counters of a program that has ended; also clears the interrupt.

        Raises MachineError when it ended in an error, DriverError when it has not ended.
        """
        counters = self.counters()
        code, index = self.registers.finish()
        if code:
            raise MachineError(error_code(code), index)
        return counters

    def counters(self) -> dict[str, int]:
        return dict(self.registers.counters())

    def abort(self) -> None:
        """Stop the program; the device is no longer busy once its bursts have ended, and neither done nor in error."""
        self.registers.command("ABORT")
