"""A system of LiteX in Verilator, with the far end of its serial line in Python."""

import ctypes
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cores.config import NpuConfig
from cores.errors import NpugenError
from gen.soc.processor import Processor
from gen.soc.project import NAME, simulation_files
from gen.soc.targets import Target
from npudriver.files import read_text
from sim.rtl.build import compile_library

__all__ = ["SerialLine", "SilentError", "simulate"]

#: Cycles before the first byte: the system comes out of reset by itself, and would lose it.
_RESET = 16

_HARNESS = Path(__file__).with_name("harness.cpp")


class SilentError(NpugenError):
    """The system has not answered."""

    code = "system-silent"


def simulate(target: Target, config: NpuConfig, *, clock_mhz: float,
             processor: Processor | None = None) -> tuple["SerialLine", dict[str, Any]]:
    """The system of ``target`` with the machine of ``config`` and a ``processor`` or none, built once, and its
    ``system.json``.

    Raises SystemError when LiteX is missing or cannot make it, ToolError when it cannot be compiled.
    """
    files = simulation_files(target, config, clock_mhz=clock_mhz, processor=processor)
    description = json.loads(files.pop("system.json"))
    sources: Mapping[str, str] = {**files, _HARNESS.name: read_text(_HARNESS)}
    library = compile_library([text for entry in sources.items() for text in entry], lambda: sources, top=NAME)
    return SerialLine(library), description


class SerialLine:
    """What LiteX's `CommUART` wants of a serial port; the system's clock runs while something is read.

    The clock stands still while nothing is written or read. A byte takes a cycle, where a real line takes hundreds, so
    ``pause`` cycles pass before an answer is looked for. ``patience``: cycles without a byte until SilentError.
    """

    def __init__(self, library: Path, *, pause: int = 200, patience: int = 1_000_000) -> None:
        self.pause, self.patience = pause, patience
        self._asked = False
        self._library = _load(library)
        self._handle: int | None = self._library.soc_new()
        self.run(_RESET)

    def __enter__(self) -> "SerialLine":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def open(self) -> None:
        """Nothing: it is."""

    def close(self) -> None:
        if getattr(self, "_handle", None):
            self._library.soc_delete(self._handle)
            self._handle = None

    @property
    def cycle(self) -> int:
        """Cycles of the system's clock so far."""
        return self._library.soc_cycle(self._handle)

    def run(self, cycles: int) -> None:
        self._library.soc_run(self._handle, (1 << 64) - 1, cycles)

    def write(self, data: bytes | list[int]) -> int:
        """Returns how many bytes the system has taken: all. Raises SilentError when it does not take them."""
        data = bytes(data)
        if self._library.soc_write(self._handle, data, len(data), self.patience):
            raise SilentError(f"the system has taken nothing for {self.patience:,} cycles")
        self._asked = True
        return len(data)

    def read(self, count: int) -> bytes:
        """Raises SilentError when so many bytes do not come."""
        if self._asked:
            self.run(self.pause)
        self._asked = False
        there = self._library.soc_run(self._handle, count, self.patience)
        if there < count:
            raise SilentError(f"the system has not answered for {self.patience:,} cycles")
        taken = ctypes.create_string_buffer(count)
        self._library.soc_read(self._handle, taken, count)
        return taken.raw

    def inWaiting(self) -> int:     # the name that pyserial's ports have
        """Bytes that can be read without a pause."""
        return self._library.soc_run(self._handle, 0, 0)


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    pointer, u64 = ctypes.c_void_p, ctypes.c_uint64
    prototypes = {
        "soc_new": (pointer,), "soc_delete": (None, pointer), "soc_write": (u64, pointer, ctypes.c_char_p, u64, u64),
        "soc_run": (u64, pointer, u64, u64), "soc_read": (u64, pointer, ctypes.c_char_p, u64),
        "soc_cycle": (u64, pointer),
    }
    for name, (result, *arguments) in prototypes.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
