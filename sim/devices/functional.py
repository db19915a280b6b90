"""The instruction-level simulator as a device, with a model of the machine's registers.

A program is executed when the driver waits, or lets time go by. What can go wrong on hardware happens when it is asked
for: see `InjectedFault`.
"""

import enum
from collections import deque
from functools import lru_cache

import numpy as np

from cores.arch.error_codes import ErrorCode, LimitCode
from cores.arch.isa import INSTRUCTION_BYTES
from cores.arch.registers import BASE_ALIGNMENT, LIMIT_REGISTERS
from cores.arch.stochastic import LENGTH_BITS
from cores.config import NpuConfig
from cores.device import driver_machine
from npudriver import Backend
from sim import cycles, functional
from sim.errors import HazardError, MachineError

from .memory import SimulatedBuffer, SimulatedMemory

__all__ = ["FunctionalBackend", "InjectedFault", "program_cycles"]

_BASE, _MEMORY = 0x4000_0000, 1 << 30
_WORD = 0xFFFFFFFF
#: Bits that register ``stream_shift`` has.
_STREAM_SHIFT = (1 << LENGTH_BITS) - 1


class InjectedFault(enum.Enum):
    """What happens to a program, one for each START: see `FunctionalBackend.faults`."""

    NONE = enum.auto()
    #: A read is answered with an error, before anything is written.
    READ_ERROR = enum.auto()
    #: A write is answered with an error, after all others: results are there, but nobody knows.
    WRITE_ERROR = enum.auto()
    #: The machine stands still until its TIMEOUT.
    STALL = enum.auto()
    #: The machine computes without end; ABORT stops it.
    ENDLESS = enum.auto()
    #: The bus does not answer, and nothing but a reset helps.
    SILENT = enum.auto()
    #: The result is there, but the interrupt is not raised.
    LOST_INTERRUPT = enum.auto()


@lru_cache(maxsize=64)
def program_cycles(config: NpuConfig, code: bytes, stream_shift: int = 0) -> int:
    """By the time model. Raises MachineError for what is no program."""
    return cycles.estimate(config, code, stream_shift=stream_shift).cycles


class FunctionalBackend(Backend):
    """A device of ``config``. Its time stands still but for pauses, waits, and the cycles that programs take by the
    time model at ``clock_hz``.
    """

    def __init__(self, config: NpuConfig, *, clock_hz: float = 100e6) -> None:
        self.config, self._clock = config, clock_hz
        self._machine = driver_machine(config)
        self._names = {address: name for name, address in self._machine.registers.items()}
        self.memory = SimulatedMemory(_BASE, _MEMORY)
        #: Of the next STARTs; none where it is empty.
        self.faults: deque[InjectedFault] = deque()
        self.starts = 0
        self._seconds = 0.0
        self._power_on()

    def _power_on(self) -> None:
        self._registers = dict.fromkeys(self._machine.registers, 0) | dict(self._machine.fingerprint)
        self._registers["timeout"] = 1 << 20
        if self.config.limits:
            self._registers["limit_last_low"] = BASE_ALIGNMENT - 1
        self._fault: InjectedFault | None = None      # of the program that is under way

    # -- registers ---------------------------------------------------------------------------------------------------

    def read32(self, address: int) -> int:
        name = self._names.get(address)
        return self._registers[name] if name is not None and name != "control" else 0

    def write32(self, address: int, value: int) -> None:
        name = self._names.get(address)
        if name == "control":
            self._control(value)
        elif name in LIMIT_REGISTERS:
            self._set_limit(name, value)
        elif name in ("irq_enable", "timeout") or (name is not None and self._fault is None and name in (
                "program_low", "program_high", "program_length", "data_low", "data_high", "data_beats",
                "write_start", "stream_shift")):
            self._registers[name] = value & (_STREAM_SHIFT if name == "stream_shift" else _WORD)

    def _set_limit(self, name: str, value: int) -> None:
        """As hardware does: not during a run, and but for the lock not while locked."""
        if self._fault is not None or (name != "limit_lock" and self._registers["limit_lock"]):
            return
        page = BASE_ALIGNMENT - 1
        self._registers[name] = {"limit_lock": value & 1, "limit_first_low": value & _WORD & ~page,
                                 "limit_last_low": value & _WORD | page}.get(name, value & _WORD)

    def _reached(self, what: str, size: int, unit: int) -> range:
        """Which of the units from a region's begin on are inside of the limits; all, where the machine has none."""
        count = size // unit
        if not self.config.limits:
            return range(count)
        base, first, last = (self._address(name) for name in (what, "limit_first", "limit_last"))
        if not self._registers["limit_lock"]:
            return range(0)
        return range(max(0, -(-(first - base) // unit)), min(count, (last + 1 - base) // unit))

    def _control(self, value: int) -> None:
        bits, status = self._machine.control, self._machine.status
        if value & bits["CLEAR"]:
            self._registers["status"] &= status["BUSY"]
            self._registers["error_code"] = self._registers["error_index"] = 0
        if value & bits["ABORT"] and self._fault not in (None, InjectedFault.SILENT):
            self._fault = None
            self._registers["status"] = 0
        if value & bits["START"] and self._fault is None:
            self._fault = self.faults.popleft() if self.faults else InjectedFault.NONE
            self.starts += 1
            self._registers["status"] = status["BUSY"]
            self._registers |= {name: 0 for name in self._registers if name.startswith("counter_")}

    # -- programs ----------------------------------------------------------------------------------------------------

    def _go_on(self) -> bool:
        """Whether the program that is under way has ended."""
        fault = self._fault
        if fault in (None, InjectedFault.ENDLESS, InjectedFault.SILENT):
            return False
        if fault is InjectedFault.READ_ERROR:
            self._end(ErrorCode.READ_SLVERR, 0)
        elif fault is InjectedFault.STALL:
            self._seconds += self._registers["timeout"] / self._clock
            self._end(ErrorCode.TIMEOUT, 0)
        else:
            self._execute()
            if fault is InjectedFault.WRITE_ERROR:
                self._end(ErrorCode.WRITE_SLVERR, self._registers["program_length"] - 1)
        return True

    def _execute(self) -> None:
        registers = self._registers
        code = self._at("program", registers["program_length"] * INSTRUCTION_BYTES)
        region = self._at("data", registers["data_beats"] * self.config.beat_bytes)
        fetched = self._reached("program", registers["program_length"] * INSTRUCTION_BYTES, INSTRUCTION_BYTES)
        if len(fetched) < registers["program_length"]:
            first = fetched.stop if 0 in fetched else 0
            self._end(LimitCode.FETCH_LIMIT, first, self._address("program") + first * INSTRUCTION_BYTES)
            return
        if code is None or region is None:
            self._end(ErrorCode.READ_DECERR, 0)
            return
        reach = self._reached("data", region.size, self.config.beat_bytes)
        try:
            shift = registers.get("stream_shift", 0)
            done = functional.run(self.config, code.tobytes(), region, write_start=registers["write_start"],
                                  stream_shift=shift, reach=reach)
        except MachineError as error:
            self._end(error.cause, error.index, self._address("data") + error.beat * self.config.beat_bytes)
            return
        except HazardError as error:    # more than the input buffer holds
            self._end(ErrorCode.BUFFER, error.index)
            return
        taken = program_cycles(self.config, code.tobytes(), shift)
        self._seconds += taken / self._clock
        for name, value in (("cycles", taken), ("instructions", done.instructions), ("read_beats", done.read_beats),
                            ("write_beats", done.write_beats)):
            registers[f"counter_{name}_low"], registers[f"counter_{name}_high"] = value & _WORD, value >> 32
        self._end(ErrorCode.NONE, 0)

    def _at(self, what: str, size: int) -> np.ndarray | None:
        return self.memory.view(self._address(what), size)

    def _address(self, what: str) -> int:
        return self._registers[f"{what}_low"] | self._registers[f"{what}_high"] << 32

    def _end(self, code: ErrorCode | LimitCode, index: int, address: int = 0) -> None:
        self._fault = None
        if isinstance(code, LimitCode):
            self._registers["limit_address_low"], self._registers["limit_address_high"] = address & _WORD, address >> 32
        self._registers["status"] = self._machine.status["ERROR" if code else "DONE"]
        self._registers["error_code"], self._registers["error_index"] = code.value, index

    # -- the rest ----------------------------------------------------------------------------------------------------

    def allocate(self, size: int, alignment: int) -> SimulatedBuffer:
        return self.memory.allocate(size, alignment)

    def wait_interrupt(self, seconds: float) -> bool:
        lost = self._fault is InjectedFault.LOST_INTERRUPT
        if self._fault is not None and self._go_on() and not lost:
            return bool(self._registers["irq_enable"])
        up = self._fault is None and not lost and bool(self._registers["status"] and self._registers["irq_enable"])
        if not up:
            self._seconds += seconds
        return up

    def pause(self, seconds: float) -> None:
        self._go_on()
        self._seconds += seconds

    def time(self) -> float:
        return self._seconds

    def reset(self) -> bool:
        self._power_on()
        return True

    def close(self) -> None:
        pass
