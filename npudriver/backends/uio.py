"""A device in the fabric beside the processor, under Linux: UIO for registers and interrupt, u-dma-buf for memory.

The kernel's generic UIO driver makes /dev/uioN of a device-tree node, u-dma-buf makes /dev/udmabufN of memory without
gaps. The host's view of that memory is cached; what is written is flushed and what is read invalidated, unless the
memory is coherent.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import select
import struct
import time
from pathlib import Path

import numpy as np

from ..arena import Arena
from ..backend import Backend, Buffer
from ..errors import TransportError
from ..files import read_text, reason

__all__ = ["UioBackend"]

_TO_DEVICE, _FROM_DEVICE = 1, 2
#: Bytes of a page of registers.
_PAGE = 0x1000
_LINE = 64      # bytes of a cache line, at least as many as any processor here has
#: Seconds between two looks at a device without interrupt.
_POLL = 100e-6
_BUFFER_CLASSES = ("u-dma-buf", "udmabuf")


class UioBackend(Backend):
    """``device``: /dev/uioN, uioN, or the name that the device tree gives it; ``buffer``: /dev/udmabufN, or its name.

    ``interrupt``: another file whose reads wait for the interrupt, where it is not the device's. ``sysfs``, ``dev``:
    where the kernel's files are. Device and memory are this process's until it closes them; a device whose node names
    no interrupt is polled. The limits of a machine that has them are reached by a device called as this one and
    ``-limits``, if this process may open it. Raises TransportError.
    """

    def __init__(self, device: str = "npu", buffer: str = "udmabuf0", *, interrupt: str | None = None,
                 sysfs: str = "/sys/class", dev: str = "/dev") -> None:
        self._files: list[int] = []
        self._maps: list[mmap.mmap] = []
        try:
            path = Path(dev) / _uio_name(device, Path(sysfs) / "uio")
            self._device = self._opened(path, os.O_RDWR | os.O_SYNC)
            self._lock(self._device, path, "device")
            self._registers = np.frombuffer(self._mapped(self._device, _map_size(Path(sysfs), path.name)), np.uint32)
            self._limits = self._limits_of(path.name, Path(dev), Path(sysfs))
            self._interrupt = self._device if interrupt is None else self._opened(Path(interrupt), os.O_RDWR)
            self._memory = _Udmabuf(self, Path(dev) / Path(buffer).name, Path(sysfs))
        except BaseException:
            self.close()
            raise

    def _opened(self, path: Path, flags: int) -> int:
        try:
            self._files.append(os.open(path, flags | os.O_CLOEXEC))
        except OSError as error:
            hint = "; run as root, or give yourself access by a udev rule" if isinstance(error, PermissionError) else ""
            raise TransportError(f"{path}: {error.strerror}{hint}") from None
        return self._files[-1]

    def _lock(self, file: int, path: Path, what: str) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            busy = error.errno == errno.EWOULDBLOCK
            raise TransportError(f"{path}: {f'another process uses the {what}' if busy else error.strerror}") from None

    def _mapped(self, file: int, size: int) -> mmap.mmap:
        try:
            self._maps.append(mmap.mmap(file, size))
        except (OSError, ValueError) as error:
            raise TransportError(f"{size} bytes of the device's memory cannot be mapped: {reason(error)}") from None
        return self._maps[-1]

    def _limits_of(self, device: str, dev: Path, sysfs: Path) -> np.ndarray:
        """The page of the limits: a device of its own, whose owner may keep it to himself. Else nothing."""
        try:
            name = read_text(sysfs / "uio" / device / "name").strip()
            path = dev / _uio_name(f"{name}-limits", sysfs / "uio")
            file = self._opened(path, os.O_RDWR | os.O_SYNC)
        except (OSError, TransportError):
            return np.zeros(0, np.uint32)
        self._lock(file, path, "limits")
        return np.frombuffer(self._mapped(file, _map_size(sysfs, path.name)), np.uint32)

    def _word(self, address: int) -> np.ndarray:
        """A register, as a part of its page; nothing where this process has no such page."""
        number, beyond = address >> 2, (address - _PAGE) >> 2
        return self._registers[number:number + 1] if number < self._registers.size or beyond < 0 else \
            self._limits[beyond:beyond + 1]

    def read32(self, address: int) -> int:
        word = self._word(address)
        return int(word[0]) if word.size else 0

    def write32(self, address: int, value: int) -> None:
        self._word(address)[:] = value

    def wait_interrupt(self, seconds: float) -> bool:
        try:
            os.write(self._interrupt, struct.pack("=i", 1))     # the kernel masks it each time it comes
            ready, _, _ = select.select([self._interrupt], [], [], max(0.0, seconds))
            if ready:
                os.read(self._interrupt, 4)
        except OSError as error:
            if error.errno == errno.EIO:    # the device tree names none
                time.sleep(min(max(0.0, seconds), _POLL))
                return False
            raise TransportError(f"the interrupt cannot be waited for: {error.strerror}") from None
        return bool(ready)

    def allocate(self, size: int, alignment: int) -> Buffer:
        return self._memory.allocate(size, alignment)

    def close(self) -> None:
        self.__dict__.pop("_registers", None)
        self.__dict__.pop("_limits", None)
        self.__dict__.pop("_memory", None)
        while self._maps:
            try:
                self._maps.pop().close()
            except BufferError:     # somebody has an array of it yet, with which it goes
                pass
        while self._files:
            os.close(self._files.pop())


def _uio_name(device: str, uio: Path) -> str:
    """``uioN`` of a path, of itself, or of the name that the device tree has. Raises TransportError."""
    name = Path(device).name
    if name.startswith("uio") and name[3:].isdigit():
        return name
    names = {}
    for entry in sorted(uio.glob("uio*")):
        try:
            names[entry.name] = read_text(entry / "name").strip()
        except OSError:
            continue
    found = [file for file, known in names.items() if known == device]
    if not found:
        known = ", ".join(sorted(set(names.values()))) or "none"
        raise TransportError(f"no UIO device is called {device}; there are {known}", code="no-device")
    if len(found) > 1:
        raise TransportError(f"{len(found)} UIO devices are called {device}: name one of {', '.join(found)}",
                             code="no-device")
    return found[0]


def _map_size(sysfs: Path, name: str) -> int:
    """Bytes of the register port."""
    try:
        return int(read_text(sysfs / "uio" / name / "maps" / "map0" / "size"), 0)
    except (OSError, ValueError):
        raise TransportError(f"{sysfs / 'uio' / name}: has no map0 with the device's registers",
                             code="no-device") from None


class _Udmabuf:
    """The memory of /dev/udmabufN."""

    def __init__(self, backend: UioBackend, path: Path, sysfs: Path) -> None:
        folder = next((sysfs / kind / path.name for kind in _BUFFER_CLASSES if (sysfs / kind / path.name).is_dir()),
                      None)
        if folder is None:
            raise TransportError(f"{path}: there is no such u-dma-buf; load its kernel module", code="no-device")
        try:
            address, size = (int(read_text(folder / name), 0) for name in ("phys_addr", "size"))
            coherent = int(read_text(folder / "dma_coherent"), 0) if (folder / "dma_coherent").is_file() else 0
        except (OSError, ValueError) as error:
            raise TransportError(f"{folder}: cannot be read ({reason(error)})") from None
        file = backend._opened(path, os.O_RDWR)     # without O_SYNC: cached
        backend._lock(file, path, "memory")
        mapped = backend._mapped(file, size)
        self.array = np.frombuffer(mapped, np.uint8)
        self.arena = Arena(address, size)
        self._sync = {} if coherent else {
            name: backend._opened(folder / name, os.O_WRONLY)
            for name in ("sync_offset", "sync_size", "sync_direction", "sync_for_device", "sync_for_cpu")}

    def allocate(self, size: int, alignment: int) -> _UioBuffer:
        return _UioBuffer(self, self.arena.allocate(size, alignment), size)

    def sync(self, offset: int, size: int, direction: int) -> None:
        """Write caches back, or drop them, so that the other side sees what was written."""
        if not self._sync or not size:
            return
        first = offset // _LINE * _LINE
        end = min(-(-(offset + size) // _LINE) * _LINE, self.array.size)
        for name, value in (("sync_offset", first), ("sync_size", end - first), ("sync_direction", direction),
                            ("sync_for_device" if direction == _TO_DEVICE else "sync_for_cpu", 1)):
            try:
                os.pwrite(self._sync[name], f"{value}\n".encode(), 0)
            except OSError as error:
                raise TransportError(f"{name} of u-dma-buf cannot be written: {error.strerror}") from None


class _UioBuffer(Buffer):
    def __init__(self, memory: _Udmabuf, address: int, size: int) -> None:
        self._memory, self.address, self.size = memory, address, size
        self._first = address - memory.arena.base
        self._freed = False

    def write(self, offset: int, data: np.ndarray) -> None:
        self.check(offset, data.size)
        begin = self._first + offset
        self._memory.array[begin:begin + data.size] = data
        self._memory.sync(begin, data.size, _TO_DEVICE)

    def read(self, offset: int, size: int) -> np.ndarray:
        self.check(offset, size)
        begin = self._first + offset
        self._memory.sync(begin, size, _FROM_DEVICE)
        return self._memory.array[begin:begin + size].copy()

    def free(self) -> None:
        if not self._freed:
            self._freed = True
            self._memory.arena.free(self.address)
