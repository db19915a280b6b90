"""A device that takes the time of hardware, and computes nothing: what a driver makes of its time."""

import time

from cores.arch.isa import INSTRUCTION_BYTES, ErrorCode

from .functional import FunctionalBackend, program_cycles

__all__ = ["PacedBackend"]

#: Seconds before the end from which on it is waited for without sleeping.
_SPIN = 200e-6


class PacedBackend(FunctionalBackend):
    """From START on a program takes its cycles by the time model, at ``clock_hz``, on this computer's clock.

    Memory is left as it is. There are no mishaps.
    """

    _due = 0.0

    def _control(self, value: int) -> None:
        super()._control(value)
        if value & self._machine.control["START"] and self._mishap is not None:
            code = self._at("program", self._registers["program_length"] * INSTRUCTION_BYTES)
            cycles = 0 if code is None else program_cycles(self.config, code.tobytes())
            self._registers["counter_cycles_low"] = cycles
            self._due = time.perf_counter() + cycles / self._clock

    def read32(self, address: int) -> int:
        self._go_on()
        return super().read32(address)

    def _go_on(self) -> bool:
        if self._mishap is None or time.perf_counter() < self._due:
            return False
        self._end(ErrorCode.NONE, 0)
        return True

    def wait_interrupt(self, seconds: float) -> bool:
        end = time.perf_counter() + seconds
        if self._mishap is not None:
            end = min(end, self._due)
        while (left := end - time.perf_counter()) > 0:
            if left > _SPIN:
                time.sleep(left - _SPIN)
        self._go_on()
        return bool(self._mishap is None and self._registers["irq_enable"])

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def time(self) -> float:
        return time.monotonic()
