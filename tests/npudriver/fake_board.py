"""Files of a board as UIO and u-dma-buf have them, in a folder; behind them is a simulated NPU."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from cores.config import NpuConfig
from npudriver.backends.uio import UioBackend
from sim.devices import FunctionalBackend

ADDRESS, SIZE = 0x7000_0000, 1 << 18


def make_files(folder: Path, *, name: str = "npu", kind: str = "u-dma-buf", coherent: bool = False) -> None:
    """``dev`` and ``class``, as the kernel makes them; the interrupt is a FIFO."""
    uio, buffer, dev = folder / "class" / "uio" / "uio3", folder / "class" / kind / "udmabuf0", folder / "dev"
    for path in (uio / "maps" / "map0", buffer, dev):
        path.mkdir(parents=True)
    (uio / "name").write_text(f"{name}\n")
    (uio / "maps" / "map0" / "size").write_text("0x00001000\n")
    for file, value in (("phys_addr", f"{ADDRESS:#x}"), ("size", SIZE), ("dma_coherent", int(coherent)),
                        ("sync_offset", 0), ("sync_size", 0), ("sync_direction", 0), ("sync_for_device", 0),
                        ("sync_for_cpu", 0)):
        (buffer / file).write_text(f"{value}\n")
    (dev / "uio3").write_bytes(bytes(4096))
    (dev / "udmabuf0").write_bytes(bytes(SIZE))
    os.mkfifo(folder / "interrupt")


class _Memory:
    """The file of the u-dma-buf as the simulated device's memory."""

    def __init__(self, path: Path) -> None:
        self.array = np.memmap(path, np.uint8, "r+")

    def view(self, address: int, size: int) -> np.ndarray | None:
        first = address - ADDRESS
        return self.array[first:first + size] if 0 <= first and first + size <= SIZE else None


class FakeBoard(UioBackend):
    """`UioBackend` on such files: what it writes to a register goes to a simulated device, whose registers it then
    reads from the file. All memory is that of the file of the u-dma-buf.
    """

    def __init__(self, folder: Path, config: NpuConfig, **options: Any) -> None:
        self.simulated = FunctionalBackend(config)
        self.simulated.memory = _Memory(folder / "dev" / "udmabuf0")  # type: ignore[assignment]
        self._port = np.memmap(folder / "dev" / "uio3", np.uint32, "r+")
        super().__init__(**{"device": "npu", "interrupt": str(folder / "interrupt"), "sysfs": str(folder / "class"),
                            "dev": str(folder / "dev"), **options})
        self._show()

    def _show(self) -> None:
        """The device's registers, in the file."""
        for address in self.simulated._machine.registers.values():
            self._port[address >> 2] = self.simulated.read32(address)

    def write32(self, address: int, value: int) -> None:
        super().write32(address, value)
        assert self._port[address >> 2] == value, "it must be in the file"
        self.simulated.write32(address, value)
        self._show()

    def wait_interrupt(self, seconds: float) -> bool:
        if self.simulated.wait_interrupt(0):
            os.write(self._interrupt, b"\1\0\0\0")
        self._show()
        return super().wait_interrupt(min(seconds, 0.01))


__all__ = ["ADDRESS", "SIZE", "FakeBoard", "make_files"]
