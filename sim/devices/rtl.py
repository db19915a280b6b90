"""The generated Verilog as a device: it is simulated as far as the driver waits."""

from collections.abc import Callable

from cores.config import NpuConfig
from npudriver import Backend
from sim.rtl.machine import RtlMachine, RunStatus
from sim.rtl.run import data_base

from .memory import SimulatedBuffer, SimulatedMemory

__all__ = ["RtlBackend"]

#: Cycles that are simulated at once: Ctrl-C is heard between them.
_SLICE = 100_000
#: Bytes of memory that programs can be loaded into; what is not used takes no room.
_MEMORY = 1 << 30


class RtlBackend(Backend):
    """A device of ``config`` in Verilator; ``machine``: one that is there already, which is then left open.

    Its time goes by in cycles of a clock of ``clock_hz``. ``progress`` is called with the cycles so far.

    Raises ToolError when the simulation cannot be built.
    """

    def __init__(self, config: NpuConfig, *, machine: RtlMachine | None = None, clock_hz: float = 100e6,
                 progress: Callable[[int], None] = lambda cycles: None) -> None:
        self.simulation = machine or RtlMachine(config)
        self._own, self._clock, self._progress = machine is None, clock_hz, progress
        # Across a line of 4 GiB, where addresses reach so far.
        self.memory = SimulatedMemory(data_base(config), _MEMORY, self._map)
        self.simulation.reset()
        self._map()

    def _map(self) -> None:
        self.simulation.map_memory({address: buffer.array for address, buffer in self.memory.buffers.items()})

    def read32(self, address: int) -> int:
        return self.simulation.read32(address)

    def write32(self, address: int, value: int) -> None:
        self.simulation.write32(address, value)

    def allocate(self, size: int, alignment: int) -> SimulatedBuffer:
        return self.memory.allocate(size, alignment)

    def wait_interrupt(self, seconds: float) -> bool:
        cycles = max(1, round(seconds * self._clock))
        while cycles > 0:
            if self.simulation.run(min(cycles, _SLICE)) is RunStatus.INTERRUPT:
                return True
            cycles -= _SLICE
            self._progress(self.simulation.stats.cycle)
        return False

    def pause(self, seconds: float) -> None:
        before = self.simulation.stats.cycle
        if self.wait_interrupt(seconds) and self.simulation.stats.cycle == before:
            # The simulation stands still at an interrupt that is up. A look at any register lets time go by.
            for _ in range(16):
                self.simulation.read32(0)

    def reset(self) -> bool:
        self.simulation.reset()
        return True

    def time(self) -> float:
        return self.simulation.stats.cycle / self._clock

    def close(self) -> None:
        if self._own:
            self.simulation.close()
