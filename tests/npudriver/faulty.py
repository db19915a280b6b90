"""A back end with something wrong: around any other, which knows nothing of it."""

from collections.abc import Callable

import numpy as np

from npudriver import Backend, Buffer

from .small import MACHINE

__all__ = ["FaultyBackend"]

REG = MACHINE.registers

Change = Callable[[np.ndarray], np.ndarray]
#: Of a program's code and the writable part of its data region.
Leaves = Callable[[np.ndarray, np.ndarray], np.ndarray]


class _FaultyBuffer(Buffer):
    """``arrives``: what becomes of a written range on its way to the device; ``read_back``: to the host. ``stale``:
    the host reads what it wrote itself.
    """

    def __init__(self, inner: Buffer, arrives: Change | None, read_back: Change | None, shift: int,
                 stale: bool) -> None:
        self.inner, self.address, self.size = inner, inner.address + shift, inner.size
        self._arrives, self._read_back, self._stale = arrives, read_back, stale
        self._cache = np.zeros(inner.size, np.uint8)
        self.machine_wrote = False

    def write(self, offset: int, data: np.ndarray) -> None:
        self._cache[offset:offset + data.size] = data
        self.inner.write(offset, self._arrives(data) if self._arrives else data)

    def read(self, offset: int, size: int) -> np.ndarray:
        if self._read_back:
            return self._read_back(self.inner.read(offset, size))
        if self._stale or (self._arrives and not self.machine_wrote):
            return self._cache[offset:offset + size].copy()
        return self.inner.read(offset, size)

    def free(self) -> None:
        self.inner.free()


class FaultyBackend(Backend):
    """``register``: (address, value) -> what is read; ``write``: whether a write of a register arrives, changed; others
    as `_FaultyBuffer`. ``shift``: of the addresses that the host believes in; ``interrupt``: what a wait says;
    ``leaves``: what becomes of what a program has written, by when it has ended.
    """

    def __init__(self, inner: Backend, *, register: Callable[[int, int], int] | None = None,
                 write: Callable[[int, int], tuple[int, int] | None] | None = None, arrives: Change | None = None,
                 read_back: Change | None = None, shift: int = 0, interrupt: bool | None = None,
                 leaves: Leaves | None = None, stale: bool = False) -> None:
        self._leaves, self._stale = leaves, stale
        self._buffers: list[_FaultyBuffer] = []
        self._started = False
        self.inner, self._register, self._write = inner, register, write
        self._arrives, self._read_back, self._shift, self._interrupt = arrives, read_back, shift, interrupt

    def read32(self, address: int) -> int:
        value = self.inner.read32(address)
        if self._started and address == REG["status"] and not value & MACHINE.status["BUSY"]:
            self._started = False
            self._ended()
        return self._register(address, value) if self._register else value

    def write32(self, address: int, value: int) -> None:
        changed = self._write(address, value) if self._write else (address, value)
        if changed:
            self._started |= changed[0] == REG["control"] and bool(changed[1] & MACHINE.control["START"])
            self.inner.write32(*changed)

    def _ended(self) -> None:
        def place(name: str) -> tuple[_FaultyBuffer | None, int]:
            """The buffer in which a region begins, and where."""
            address = self.inner.read32(REG[f"{name}_low"]) | self.inner.read32(REG[f"{name}_high"]) << 32
            found = next((one for one in reversed(self._buffers)
                          if one.inner.address <= address < one.inner.address + one.size), None)
            return found, 0 if found is None else address - found.inner.address

        (code, first), (data, base) = place("program"), place("data")
        if code is None or data is None:
            return
        data.machine_wrote = True
        if self._leaves:
            begin, end = (base + MACHINE.beat_bytes * self.inner.read32(REG[name])
                          for name in ("write_start", "data_beats"))
            program = code.inner.read(first, 16 * self.inner.read32(REG["program_length"]))
            data.inner.write(begin, self._leaves(program, data.inner.read(begin, end - begin)))

    def allocate(self, size: int, alignment: int) -> Buffer:
        self._buffers.append(_FaultyBuffer(self.inner.allocate(size, alignment), self._arrives, self._read_back,
                                           self._shift, self._stale))
        return self._buffers[-1]

    def wait_interrupt(self, seconds: float) -> bool:
        """One that is stuck takes no time, or all of it."""
        found = self.inner.wait_interrupt(0.0 if self._interrupt else seconds)
        if self._interrupt is False and found:
            self.inner.pause(seconds)
        return found if self._interrupt is None else self._interrupt

    def pause(self, seconds: float) -> None:
        self.inner.pause(seconds)

    def time(self) -> float:
        return self.inner.time()

    def reset(self) -> bool:
        return self.inner.reset()

    def close(self) -> None:
        self.inner.close()
