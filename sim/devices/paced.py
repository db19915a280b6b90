"""A device that takes the time of hardware, and computes nothing: what a driver makes of its time."""

import time

from cores.arch.error_codes import ErrorCode
from cores.arch.isa import INSTRUCTION_BYTES

from .functional import FunctionalBackend, program_cycles

__all__ = ["PacedBackend"]


class PacedBackend(FunctionalBackend):
    """From START on a program takes its cycles by the time model, at ``clock_hz``.

    The other side's time is the processor time of this process: the clock that both go by is that, and what was waited
    for the device, which nobody really waits for. So what else this computer is at does not count. Memory is left as it
    is; there are no faults.
    """

    _due = 0.0
    _waited = 0.0

    def time(self) -> float:
        return time.process_time() + self._waited

    def _control(self, value: int) -> None:
        super()._control(value)
        if value & self._machine.control["START"] and self._fault is not None:
            code = self._at("program", self._registers["program_length"] * INSTRUCTION_BYTES)
            shift = self._registers.get("stream_shift", 0)
            cycles = 0 if code is None else program_cycles(self.config, code.tobytes(), shift)
            self._registers["counter_cycles_low"] = cycles
            self._due = self.time() + cycles / self._clock

    def read32(self, address: int) -> int:
        self._go_on()
        return super().read32(address)

    def _go_on(self) -> bool:
        if self._fault is None or self.time() < self._due:
            return False
        self._end(ErrorCode.NONE, 0)
        return True

    def wait_interrupt(self, seconds: float) -> bool:
        left = seconds if self._fault is None else min(seconds, self._due - self.time())
        self._waited += max(0.0, left)
        self._go_on()
        return bool(self._fault is None and self._registers["irq_enable"])

    def pause(self, seconds: float) -> None:
        self._waited += seconds
