"""A back end with something wrong: around any other, which knows nothing of it."""

from collections.abc import Callable

import numpy as np

from npudriver import Backend, Buffer

__all__ = ["FaultyBackend"]

Change = Callable[[np.ndarray], np.ndarray]


class _FaultyBuffer(Buffer):
    """``arrives``: what becomes of a written range on its way to the device; ``read_back``: to the host."""

    def __init__(self, inner: Buffer, arrives: Change | None, read_back: Change | None, shift: int) -> None:
        self.inner, self.address, self.size = inner, inner.address + shift, inner.size
        self._arrives, self._read_back = arrives, read_back
        self._cache = np.zeros(inner.size, np.uint8)

    def write(self, offset: int, data: np.ndarray) -> None:
        self._cache[offset:offset + data.size] = data
        self.inner.write(offset, self._arrives(data) if self._arrives else data)

    def read(self, offset: int, size: int) -> np.ndarray:
        if self._read_back:
            return self._read_back(self.inner.read(offset, size))
        return self._cache[offset:offset + size].copy() if self._arrives else self.inner.read(offset, size)

    def free(self) -> None:
        self.inner.free()


class FaultyBackend(Backend):
    """``register``: (address, value) -> what is read; ``write``: whether a write of a register arrives, changed; others
    as `_FaultyBuffer`. ``shift``: of the addresses that the host believes in; ``interrupt``: what a wait says.
    """

    def __init__(self, inner: Backend, *, register: Callable[[int, int], int] | None = None,
                 write: Callable[[int, int], tuple[int, int] | None] | None = None, arrives: Change | None = None,
                 read_back: Change | None = None, shift: int = 0, interrupt: bool | None = None) -> None:
        self.inner, self._register, self._write = inner, register, write
        self._arrives, self._read_back, self._shift, self._interrupt = arrives, read_back, shift, interrupt

    def read32(self, address: int) -> int:
        value = self.inner.read32(address)
        return self._register(address, value) if self._register else value

    def write32(self, address: int, value: int) -> None:
        changed = self._write(address, value) if self._write else (address, value)
        if changed:
            self.inner.write32(*changed)

    def allocate(self, size: int, alignment: int) -> Buffer:
        return _FaultyBuffer(self.inner.allocate(size, alignment), self._arrives, self._read_back, self._shift)

    def wait_interrupt(self, seconds: float) -> bool:
        found = self.inner.wait_interrupt(seconds)
        return found if self._interrupt is None else self._interrupt

    def pause(self, seconds: float) -> None:
        self.inner.pause(seconds)

    def time(self) -> float:
        return self.inner.time()

    def reset(self) -> bool:
        return self.inner.reset()

    def close(self) -> None:
        self.inner.close()
