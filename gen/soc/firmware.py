"""A model's image for the processor of a system: its sources, compiled, and the samples that are put beside it."""

import struct
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from shutil import which
from typing import Any, ClassVar

import numpy as np

from gen.deploy.c_model import CModel, ModelPort
from gen.deploy.c_sources import board_header, template
from gen.soc.processor import Processor
from npudriver.files import named, read_file
from sim.toolchain import ToolError, child_process

__all__ = ["MAILBOX_OFFSET", "Firmware", "FirmwareError", "Mailbox", "compile_firmware", "firmware_files"]

_SOURCES = Path(__file__).resolve().parents[2] / "npudriver" / "c"
#: Of the tools, what their names begin with: the Makefile's.
_CROSS = "riscv64-unknown-elf-"
#: Of npudriver/c/vexriscv/firmware.h: where the mailbox is in an image, and what aligns samples and their parts.
MAILBOX_OFFSET = 16
_ALIGNMENT = 32
_MAGIC = 0x4355504e


class FirmwareError(ToolError):
    """An image that cannot be compiled."""

    code = "processor-image"


@dataclass(frozen=True)
class Mailbox:
    """As ``npugen_mailbox`` of npudriver/c/vexriscv/firmware.h."""

    magic: int
    samples: int
    count: int
    done: int
    state: int
    status: int
    what: int
    fault_code: int
    fault_index: int
    cause: int
    instruction: int
    value: int
    load_cycles: int

    #: Of the C structure.
    LAYOUT: ClassVar = struct.Struct("<12IQ")

    @classmethod
    def read(cls, data: bytes) -> "Mailbox":
        return cls(*cls.LAYOUT.unpack(data[:cls.LAYOUT.size]))

    def to_bytes(self) -> bytes:
        return self.LAYOUT.pack(*astuple(self))


@dataclass(frozen=True, eq=False)
class Firmware:
    """``image`` is loaded where memory begins; ``files``: of which it was compiled, with itself."""

    image: bytes
    files: Mapping[str, bytes]
    inputs: Sequence[ModelPort]
    outputs: Sequence[ModelPort]

    @property
    def mailbox(self) -> Mailbox:
        return Mailbox.read(self.image[MAILBOX_OFFSET:])

    @property
    def rank(self) -> int:
        """Axes of inputs and outputs, at most."""
        return max([1, *(len(port.shape) for port in (*self.inputs, *self.outputs))])

    @property
    def _record(self) -> struct.Struct:
        return struct.Struct(f"<QQ{len(self.outputs) * self.rank}I")

    @property
    def sample_bytes(self) -> int:
        """From one sample in memory to the next."""
        return sum(map(_aligned, [self._record.size, *map(_bytes, (*self.inputs, *self.outputs))]))

    def sample(self, inputs: Mapping[str, np.ndarray]) -> bytes:
        """What is put into memory for one sample, of which ``inputs`` has the values by name: (1, ...) or without."""
        parts = [bytes(self._record.size)]
        parts += [np.ascontiguousarray(inputs[port.name], port.dtype).tobytes() for port in self.inputs]
        parts += [bytes(_bytes(port)) for port in self.outputs]
        return b"".join(part.ljust(_aligned(len(part)), b"\0") for part in parts)

    def result(self, data: bytes) -> tuple[dict[str, np.ndarray], int, int]:
        """Of a sample that is done: outputs by name, cycles from sample to outputs, and of these the machine's."""
        cycles, accelerator, *axes = self._record.unpack(data[:self._record.size])
        at = _aligned(self._record.size) + sum(_aligned(_bytes(port)) for port in self.inputs)
        outputs = {}
        for number, port in enumerate(self.outputs):
            shape = axes[number * self.rank:][:len(port.shape)]
            outputs[port.name] = np.frombuffer(data, port.dtype, int(np.prod(shape, dtype=np.int64)), at).reshape(shape)
            at += _aligned(_bytes(port))
        return outputs, cycles, accelerator


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _bytes(port: ModelPort) -> int:
    return port.values * np.dtype(port.dtype).itemsize


def firmware_files(model: CModel, description: Mapping[str, Any], processor: Processor) -> dict[str, bytes]:
    """Name -> content of an image's sources. ``description``: ``system.json`` of a system with ``processor``."""
    facts = {"registers": description["registers"], "memory": description["regions"]["main_ram"],
             "line": processor.line, "hertz": round(description["clock_mhz"] * 1e6)}
    own = {path.name: read_file(path) for path in sorted((_SOURCES / processor.name).iterdir())}
    made = {name: template(f"{name}.jinja").render(**facts).encode() for name in ("npugen_soc.h", "npugen_soc.ld")}
    made |= board_header(description["board"], description["regions"]["npu"]["base"], description["interrupt"])
    return {**model.files, **own, **made}


def compile_firmware(model: CModel, files: Mapping[str, bytes]) -> Firmware:
    """The image of ``files``, by the compiler that their Makefile names.

    Raises ToolError when a tool is missing, FirmwareError when one fails or the image does not fit into memory.
    """
    for tool in (f"{_CROSS}gcc", "make"):
        if which(tool) is None:
            raise ToolError(f"{tool} is not installed, which compiles for the processor: apt install "
                            "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf make")
    with tempfile.TemporaryDirectory(prefix="npugen-firmware-") as name:
        folder = Path(name)
        with named(folder):
            for file, content in files.items():
                (folder / file).write_bytes(content)
        with child_process(["make", "--no-print-directory", "firmware.bin"], folder) as process:
            said, _ = process.communicate()
        if process.returncode:
            lines = [line for line in said.splitlines() if "rror" in line or "does not fit" in line] or ["no message"]
            raise FirmwareError(f"the processor's image cannot be compiled: {lines[0]}")
        made = {file: read_file(folder / file) for file in ("firmware.elf", "firmware.bin")}
    firmware = Firmware(made["firmware.bin"], {**files, **made}, model.inputs, model.outputs)
    assert firmware.mailbox.magic == _MAGIC
    return firmware
