"""The part of the package pynq that the driver uses, with a simulated NPU in its overlay.

Host and device have memories of their own, as far apart as a cache can make them: `flush` and `invalidate` alone bring
bytes from one to the other. `test_pynq.py` compares the signatures with pynq's own, where its sources are.
"""

import asyncio
from types import ModuleType
from typing import Any

import numpy as np

from cores.config import NpuConfig
from sim.devices import FunctionalBackend

BASE = 0x1000_0100     # pages are not what the driver may rely on


class PynqBuffer(np.ndarray):
    """uint8; ``device_address`` follows slices."""

    device_address: int
    stub: "Stub"

    def __array_finalize__(self, obj: Any) -> None:
        if isinstance(obj, PynqBuffer):
            self.stub = obj.stub
            offset = self.__array_interface__["data"][0] - obj.__array_interface__["data"][0]
            self.device_address = obj.device_address + offset

    def flush(self) -> None:
        self.stub.device_memory(self.device_address, self.nbytes)[:] = np.asarray(self)

    def invalidate(self) -> None:
        np.asarray(self)[:] = self.stub.device_memory(self.device_address, self.nbytes)

    def freebuffer(self) -> None:
        del self.stub.memories[self.device_address]


class Interrupt:
    def __init__(self, simulated: FunctionalBackend) -> None:
        self._simulated = simulated

    async def wait(self) -> None:
        while not self._simulated.wait_interrupt(1e-3):
            await asyncio.sleep(0)


class DefaultIP:
    def __init__(self, simulated: FunctionalBackend, *, interrupt: bool) -> None:
        self._simulated = simulated
        self.irq = Interrupt(simulated) if interrupt else None

    def read(self, offset: int = 0) -> int:
        self._simulated.pause(1e-6)
        return self._simulated.read32(offset)

    def write(self, offset: int, value: int) -> None:
        self._simulated.write32(offset, value)


class Stub:
    """``module`` stands for pynq; an overlay of any file but ``missing.bit`` has an NPU of ``config``."""

    def __init__(self, config: NpuConfig, *, interrupt: bool = True) -> None:
        self.memories: dict[int, np.ndarray] = {}
        self.simulated = FunctionalBackend(config)
        self.simulated.memory = self        # type: ignore[assignment]
        self.overlays = 0
        self._config, self._next, self._interrupt = config, BASE, interrupt
        self.module: Any = ModuleType("pynq")
        self.module.Overlay, self.module.allocate = self._overlay, self.allocate

    def _overlay(self, bitfile_name: str) -> Any:
        if bitfile_name == "missing.bit":
            raise OSError(f"Bitstream file {bitfile_name} does not exist.")
        if self._interrupt:
            asyncio.get_event_loop()    # where its controllers of interrupts look for them
        self.overlays += 1
        self.simulated.reset()
        overlay = ModuleType("overlay")
        overlay.ip_dict = {"npu": {}, "gpio": {}}   # type: ignore[attr-defined]
        overlay.npu = DefaultIP(self.simulated, interrupt=self._interrupt)  # type: ignore[attr-defined]
        return overlay

    def allocate(self, shape: tuple[int, ...], dtype: Any = "u4") -> PynqBuffer:
        if shape[0] > 1 << 24:
            raise MemoryError("out of CMA")
        buffer = np.zeros(shape, dtype).view(PynqBuffer)
        buffer.stub, buffer.device_address = self, self._next
        self.memories[self._next] = np.full(buffer.nbytes, 0xA5, np.uint8)
        self._next += buffer.nbytes + 256
        return buffer

    def device_memory(self, address: int, size: int) -> np.ndarray:
        found = self.view(address, size)
        assert found is not None
        return found

    def view(self, address: int, size: int) -> np.ndarray | None:
        for base, memory in self.memories.items():
            if base <= address and address + size <= base + memory.size:
                return memory[address - base:address - base + size]
        return None
