"""What a device is reached by: a register port, memory that it shares with the host, and its interrupt."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

import numpy as np

__all__ = ["Backend", "Buffer", "PartBuffer"]


class Buffer(ABC):
    """Memory that the device reaches. ``address``: on its bus; ``size``: bytes."""

    address: int
    size: int

    @abstractmethod
    def write(self, offset: int, data: np.ndarray) -> None:
        """Put bytes (uint8, one dimension) where the device sees them: caches are written back."""

    @abstractmethod
    def read(self, offset: int, size: int) -> np.ndarray:
        """A copy of bytes as the device has left them: uint8, one dimension."""

    @abstractmethod
    def free(self) -> None:
        """Give the memory back. Once more is no error."""

    def check(self, offset: int, size: int) -> None:
        """Raises ValueError for bytes that are not in the buffer."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise ValueError(f"bytes {offset}..{offset + size - 1} are not in a buffer of {self.size} bytes")


class PartBuffer(Buffer):
    """``size`` bytes of another buffer, which alone gives the memory back."""

    def __init__(self, whole: Buffer, first: int, size: int) -> None:
        self._whole, self._first = whole, first
        self.address, self.size = whole.address + first, size

    def write(self, offset: int, data: np.ndarray) -> None:
        self.check(offset, data.size)
        self._whole.write(self._first + offset, data)

    def read(self, offset: int, size: int) -> np.ndarray:
        self.check(offset, size)
        return self._whole.read(self._first + offset, size)

    def free(self) -> None:
        pass


class Backend(ABC):
    """One way to a device. Raises TransportError where the way itself fails."""

    #: Whether `wait_interrupt` waits for the device; the driver polls otherwise.
    has_interrupt = True

    @abstractmethod
    def read32(self, address: int) -> int:
        """A register; ``address`` in bytes from the start of the port.

        A page of registers that this way does not reach reads as 0, and writes to it do nothing.
        """

    @abstractmethod
    def write32(self, address: int, value: int) -> None: ...

    @abstractmethod
    def allocate(self, size: int, alignment: int) -> Buffer:
        """Memory of ``size`` bytes at a multiple of ``alignment``. Raises OutOfMemoryError."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the device. Once more is no error."""

    def wait_interrupt(self, seconds: float) -> bool:
        """Wait until the interrupt is raised, or for so long; whether it was. It may be without a reason."""
        raise NotImplementedError

    def reset(self) -> bool:
        """Reset the hardware, if this way can; whether it has."""
        return False

    def pause(self, seconds: float) -> None:
        """Let so much of the device's time go by."""
        time.sleep(seconds)

    def time(self) -> float:
        """Seconds of the device's time, from any beginning."""
        return time.monotonic()
