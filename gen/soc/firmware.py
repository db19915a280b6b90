"""Images for the processor of a system: their sources, compiled, and the samples that are put beside a model's."""

import struct
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np

from cores.config import NpuConfig
from gen.bringup.programs import bring_up
from gen.deploy.c_bringup import c_bringup
from gen.deploy.c_model import CModel, ModelPort
from gen.deploy.c_sources import board_header, library_files, template
from gen.soc.image import MAGIC, mailbox_of
from gen.soc.processor import Processor
from npudriver.files import named, read_file
from sim.toolchain import ToolError, child_process

__all__ = ["Firmware", "FirmwareError", "compile_firmware", "compile_image", "firmware_files", "image_files"]

_SOURCES = Path(__file__).resolve().parents[2] / "npudriver" / "c"
#: Of the tools, what their names begin with: the Makefile's.
_CROSS = "riscv64-unknown-elf-"
#: Of npudriver/c/vexriscv/firmware.c: what aligns samples and their parts.
_ALIGNMENT = 32


class FirmwareError(ToolError):
    """An image that cannot be compiled."""

    code = "processor-image"


@dataclass(frozen=True, eq=False)
class Firmware:
    """A model's ``image``, which is loaded where memory begins."""

    image: bytes
    inputs: Sequence[ModelPort]
    outputs: Sequence[ModelPort]

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


def image_files(config: NpuConfig, description: Mapping[str, Any], processor: Processor) -> dict[str, bytes]:
    """Name -> content of the sources of ``doctor.bin``, the ladder of a new board.

    ``description``: ``system.json`` of a system with ``processor``.
    """
    facts = {"registers": description["registers"], "memory": description["regions"]["main_ram"],
             "line": processor.line, "hertz": round(description["clock_mhz"] * 1e6)}
    own = {path.name: read_file(path) for path in sorted((_SOURCES / processor.name).iterdir())}
    made = {name: template(f"{name}.jinja").render(**facts).encode() for name in ("npugen_soc.h", "npugen_soc.ld")}
    made |= board_header(description["board"], description["regions"]["npu"]["base"], description["interrupt"])
    return {**library_files(config), **c_bringup(bring_up(config)), **own, **made}


def firmware_files(model: CModel, config: NpuConfig, description: Mapping[str, Any], processor: Processor
                   ) -> dict[str, bytes]:
    """Name -> content of the sources of ``firmware.bin``, which runs ``model``, and those of `image_files`."""
    return {**model.files, **image_files(config, description, processor)}


def compile_image(files: Mapping[str, bytes], name: str) -> bytes:
    """The image ``name`` of ``files``, by the compiler that their Makefile names.

    Raises ToolError when a tool is missing, FirmwareError when one fails or the image does not fit into memory.
    """
    for tool in (f"{_CROSS}gcc", "make"):
        if which(tool) is None:
            raise ToolError(f"{tool} is not installed, which compiles for the processor: apt install "
                            "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf make")
    with tempfile.TemporaryDirectory(prefix="npugen-firmware-") as place:
        folder = Path(place)
        with named(folder):
            for file, content in files.items():
                (folder / file).write_bytes(content)
        with child_process(["make", "--no-print-directory", name], folder) as process:
            said, _ = process.communicate()
        if process.returncode:
            lines = [line for line in said.splitlines() if "rror" in line or "does not fit" in line] or ["no message"]
            raise FirmwareError(f"the processor's image cannot be compiled: {lines[0]}")
        image = read_file(folder / name)
    assert mailbox_of(image).magic == MAGIC
    return image


def compile_firmware(model: CModel, files: Mapping[str, bytes]) -> Firmware:
    """A model's image; raises as `compile_image` does."""
    return Firmware(compile_image(files, "firmware.bin"), model.inputs, model.outputs)
