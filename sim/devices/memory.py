"""Memory of a simulated device."""

from collections.abc import Callable

import numpy as np

from npudriver import Buffer
from npudriver.arena import Arena

__all__ = ["SimulatedBuffer", "SimulatedMemory"]


class SimulatedBuffer(Buffer):
    """Host and device see the same ``array`` (uint8); nothing is in any cache."""

    def __init__(self, memory: "SimulatedMemory", address: int, size: int) -> None:
        self._memory, self.address, self.size = memory, address, size
        self.array = np.zeros(size, np.uint8)

    def write(self, offset: int, data: np.ndarray) -> None:
        self.check(offset, data.size)
        self.array[offset:offset + data.size] = data

    def read(self, offset: int, size: int) -> np.ndarray:
        self.check(offset, size)
        return self.array[offset:offset + size].copy()

    def free(self) -> None:
        self._memory.free(self)


class SimulatedMemory:
    """Buffers at bus addresses from ``base`` on; between them is nothing. ``changed`` is called when there are others.
    """

    def __init__(self, base: int, size: int, changed: Callable[[], None] = lambda: None) -> None:
        self._arena, self._changed = Arena(base, size), changed
        self.buffers: dict[int, SimulatedBuffer] = {}

    def allocate(self, size: int, alignment: int) -> SimulatedBuffer:
        """Raises OutOfMemoryError."""
        buffer = SimulatedBuffer(self, self._arena.allocate(size, alignment), size)
        self.buffers[buffer.address] = buffer
        self._changed()
        return buffer

    def free(self, buffer: SimulatedBuffer) -> None:
        if self.buffers.pop(buffer.address, None) is not None:
            self._arena.free(buffer.address)
            self._changed()

    def view(self, address: int, size: int) -> np.ndarray | None:
        """The bytes at bus addresses; None where no buffer holds them all."""
        for buffer in self.buffers.values():
            if buffer.address <= address and address + size <= buffer.address + buffer.size:
                return buffer.array[address - buffer.address:address - buffer.address + size]
        return None
