"""A device in an overlay of PYNQ: the bitstream is loaded, memory comes from ``pynq.allocate``."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import numpy as np

from ..backend import Backend, Buffer
from ..errors import OutOfMemoryError, TransportError

__all__ = ["PynqBackend"]


class PynqBackend(Backend):
    """``bitfile``: the bitstream, with its .hwh beside it; ``ip``: the NPU's cell of the block design.

    ``interrupt``: its pin. Raises TransportError.
    """

    def __init__(self, bitfile: str, ip: str = "npu", interrupt: str = "irq") -> None:
        self._bitfile, self._name, self._pin = bitfile, ip, interrupt
        try:
            self._pynq = importlib.import_module("pynq")
        except ImportError:
            raise TransportError("the package pynq is missing: this is no PYNQ board, or its environment is not "
                                 "activated", code="missing-package") from None
        self._loop: asyncio.AbstractEventLoop | None = None
        if not _in_event_loop():
            # Interrupts of PYNQ are asyncio's, of the loop that is there when the overlay is made.
            self._loop = asyncio.new_event_loop()
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def _load(self) -> None:
        if self._loop is not None:
            asyncio.set_event_loop(self._loop)      # of this thread, which need not be the one before
        try:
            overlay = self._pynq.Overlay(self._bitfile)
        except (OSError, ValueError, RuntimeError) as error:
            raise TransportError(f"{self._bitfile}: the overlay cannot be loaded ({error})") from None
        if self._name not in overlay.ip_dict:
            raise TransportError(f"{self._bitfile}: has no cell {self._name}; it has {', '.join(overlay.ip_dict)}",
                                 code="no-device")
        self._ip: Any = getattr(overlay, self._name)
        self._interrupt: Any = getattr(self._ip, self._pin, None)
        # In a notebook, which is in an event loop already, the driver polls.
        self.has_interrupt = self._interrupt is not None and self._loop is not None

    def read32(self, address: int) -> int:
        return int(self._ip.read(address))

    def write32(self, address: int, value: int) -> None:
        self._ip.write(address, int(value))

    def wait_interrupt(self, seconds: float) -> bool:
        assert self._loop is not None
        try:
            self._loop.run_until_complete(asyncio.wait_for(self._interrupt.wait(), max(0.0, seconds)))
        except asyncio.TimeoutError:
            return False
        return True

    def allocate(self, size: int, alignment: int) -> Buffer:
        try:
            whole = self._pynq.allocate(shape=(size + alignment,), dtype=np.uint8)
        except (MemoryError, RuntimeError) as error:
            raise OutOfMemoryError(f"no room for {size:,} bytes in the device's memory ({error}); unload a program, "
                                   "load it with fewer slots, or give Linux more CMA") from None
        return _PynqBuffer(whole, size, alignment)

    def reset(self) -> bool:
        # Objects of the overlay before are worth nothing once it is loaded again.
        self._load()
        return True

    def close(self) -> None:
        if self._loop is not None:
            asyncio.set_event_loop(None)
            self._loop.close()
            self._loop = None


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _PynqBuffer(Buffer):
    """A part of an array of PYNQ, which begins where it should."""

    def __init__(self, whole: Any, size: int, alignment: int) -> None:
        first = -int(whole.device_address) % alignment
        self._whole, self._array = whole, whole[first:first + size]
        self.address, self.size = int(whole.device_address) + first, size

    def write(self, offset: int, data: np.ndarray) -> None:
        self.check(offset, data.size)
        part = self._array[offset:offset + data.size]
        part[:] = data
        part.flush()

    def read(self, offset: int, size: int) -> np.ndarray:
        self.check(offset, size)
        part = self._array[offset:offset + size]
        part.invalidate()
        return np.array(part, np.uint8)

    def free(self) -> None:
        if self._whole is not None:
            self._whole.freebuffer()
            self._whole = self._array = None
