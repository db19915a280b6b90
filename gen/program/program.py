"""A compiled program: code, constants, the place of every tensor, and the ``.npu`` file that holds them."""

import dataclasses
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import IO, Annotated, Self

import msgspec
import numpy as np
from msgspec import Meta

from boards.registry import get_board
from cores.arch.instruction import Instruction, decode
from cores.arch.isa import INSTRUCTION_BYTES
from cores.arch.numerics import POSITIONS
from cores.arch.registers import VERSION
from cores.config import NpuConfig
from cores.errors import ArgumentError, NpugenError
from gen.files.archive import BAD_ARCHIVE, described, read_member, write_archive
from gen.files.read import is_zip, open_file
from gen.files.write import write_file
from gen.memory.placement import Placement, aligned
from npudriver import layout
from sim.stochastic.streams import Streams

__all__ = ["ConflictError", "LayerInfo", "Program", "ProgramError"]

_FORMAT = "npugen program"
#: Limits of a file, far beyond what compiled networks need (MobileNetV2: 20 KB, 14,087): memory for reading one is
#: bounded by them.
_MAX_HEADER = 1 << 24
_MAX_INSTRUCTIONS = 1 << 21
#: Numbers of a header that nothing else bounds.
_Natural = Annotated[int, Meta(ge=0, le=1 << 53)]


class ProgramError(NpugenError, ValueError):
    """A file that is not a program, or a program that does not fit what it is used with."""

    code = "damaged-program"


class ConflictError(ProgramError, ArgumentError):
    """A program that was not compiled as asked for now."""

    code = "fixed-program"


@dataclass(frozen=True)
class LayerInfo:
    """What a profile needs of a layer. ``macs`` are the dense network's, ``useful_macs`` those left after pruning."""

    name: str
    op: str
    mode: str
    input: str
    output: str
    macs: _Natural
    useful_macs: _Natural


class _Kind(msgspec.Struct):
    """Of a header, what is the same in every version."""

    format: str = ""
    version: int = 0


class _Header(_Kind, kw_only=True):
    """``program.json``: types and ranges are checked when it is read, what belongs together in `Program.load`."""

    name: str
    config: dict[str, _Natural]
    board: str | None = None
    data_beats: _Natural
    write_start: _Natural
    tensors: dict[str, Placement]
    inputs: dict[str, str]
    outputs: dict[str, str]
    layers: Annotated[tuple[LayerInfo, ...], Meta(min_length=1)]
    #: [layer, how many instructions in a row are its]; -1 for those of none.
    instruction_layers: list[tuple[Annotated[int, Meta(ge=-1, le=1 << 24)],
                                   Annotated[int, Meta(ge=1, le=_MAX_INSTRUCTIONS)]]]
    density: Annotated[float, Meta(gt=0, le=1)] | None = None
    winograd: dict[str, Annotated[tuple[Annotated[int, Meta(ge=0, le=2)], ...],
                                  Meta(min_length=POSITIONS, max_length=POSITIONS)]] = {}
    #: Length and bits made.
    streams: dict[str, tuple[_Natural, _Natural]] = {}
    #: Whether the ONNX model is kept: members have checksums, and one that is gone has none. None: not said.
    model: bool | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Program:
    """Everything that a run needs. Offsets are beats of the data region."""

    name: str
    config: NpuConfig
    code: bytes
    #: Packed weights and parameters, from the region's first beat on.
    constants: bytes
    data_beats: int
    #: First beat that stores may write.
    write_start: int
    tensors: Mapping[str, Placement]
    #: Model input and output names -> tensors.
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    layers: tuple[LayerInfo, ...]
    #: The layer of every instruction; -1 for those of none.
    instruction_layers: tuple[int, ...]
    #: Block density to which the compiler pruned, if it did.
    density: float | None = None
    #: Layers in the narrow Winograd form, and their shifts.
    winograd: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    #: Layers whose sums are made of streams, and these.
    streams: Mapping[str, Streams] = dataclasses.field(default_factory=dict)
    #: The ONNX file that was compiled, if kept.
    model: bytes | None = None
    #: Name of the board that it was compiled for, if one was.
    board: str | None = None

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """Raises ProgramError for code that is none."""
        decoded = []
        for index, start in enumerate(range(0, len(self.code), INSTRUCTION_BYTES)):
            try:
                decoded.append(decode(self.code[start:start + INSTRUCTION_BYTES]))
            except ValueError as error:
                raise ProgramError(f"program {self.name}: instruction {index}: {error}") from None
        return tuple(decoded)

    @cached_property
    def written(self) -> tuple[str, ...]:
        """The tensors in memory that the host or a layer writes: of parts and wholes, each value once."""
        names = (*self.inputs.values(), *(layer.output for layer in self.layers))
        return tuple(name for name in names if name in self.tensors)

    def holds(self, tensor: str) -> bool:
        """Whether a tensor is in memory when the program has ended: some never are, others make room."""
        place = self.tensors.get(tensor)
        if place is None:
            return False
        # Inputs are written before all layers' outputs, in order.
        for layer in reversed(self.layers):
            written = self.tensors.get(layer.output)
            if written is not None and place.overlaps(written, self.config.ic_lanes):
                return (written.whole or layer.output) == (place.whole or tensor)
        return True

    # -- data region ---------------------------------------------------------------------------------------------

    def image(self) -> np.ndarray:
        """A fresh data region: uint8 (data_beats * beat_bytes,), constants filled in, the rest zero."""
        image = np.zeros(self.data_beats * self.config.beat_bytes, np.uint8)
        image[:len(self.constants)] = np.frombuffer(self.constants, np.uint8)
        return image

    def _bytes(self, image: np.ndarray, tensor: str) -> np.ndarray:
        """A tensor's bytes in an image."""
        place, beat = self.tensors[tensor], self.config.beat_bytes
        return image[place.offset * beat:(place.offset + place.beats(beat)) * beat]

    def pack_input(self, image: np.ndarray, tensor: str, values: np.ndarray) -> None:
        """Write an int8 (C, H, W) feature map into an image. Raises ProgramError for another shape or dtype."""
        place = self.tensors[tensor]
        if place.signs:
            raise ProgramError(f"tensor {tensor!r} is a map of signs, which only the machine writes", code="bad-tensor")
        if values.shape != place.shape or values.dtype != np.int8:
            raise ProgramError(f"tensor {tensor!r} is int8 {place.shape}, not {values.dtype} {values.shape}",
                               code="bad-tensor")
        self._bytes(image, tensor)[:] = layout.pack(values, self.config.beat_bytes, interleaved=place.interleaved)

    def unpack_tensor(self, image: np.ndarray, tensor: str) -> np.ndarray:
        """The int8 (C, H, W) feature map in an image; what lies beyond C in its last block is dropped."""
        place = self.tensors[tensor]
        return layout.unpack(self._bytes(image, tensor), place.shape, self.config.beat_bytes, signs=place.signs,
                             interleaved=place.interleaved)

    def require_config(self, config: NpuConfig) -> None:
        """Raises ConflictError unless the program was compiled for ``config``."""
        if config.digest != self.config.digest:
            different = [f"{key} {value} (program) / {config.to_dict()[key]}"
                         for key, value in self.config.to_dict().items() if config.to_dict()[key] != value]
            raise ConflictError(f"program {self.name!r} was compiled for another configuration: "
                                f"{', '.join(different)}; leave the options of the machine out, or compile it again",
                                code="other-machine")

    def require_board(self, board: str) -> None:
        """Raises ConflictError if the program was compiled for another board."""
        if self.board not in (None, board):
            raise ConflictError(f"program {self.name!r} was compiled for the board {self.board}, not {board}; "
                                "leave --board out, or compile it again", code="other-machine")

    # -- file ----------------------------------------------------------------------------------------------------

    def save(self, path: Path | str) -> None:
        """Write a ``.npu`` file, as `write_file` does. The same program gives the same bytes. Raises ProgramError."""
        path = Path(path)
        content = self.to_bytes(path)
        try:
            write_file(path, content)
        except OSError as error:
            raise ProgramError(f"{path}: {error.strerror or error}", code="unreadable-file", file=str(path)) from None

    def to_bytes(self, path: Path) -> memoryview:
        """What is in a ``.npu`` file, to be written to ``path``. Raises ProgramError."""
        if len(self.instruction_layers) > _MAX_INSTRUCTIONS:
            raise ProgramError(f"{path}: {len(self.instruction_layers):,} instructions, where a program has "
                               f"{_MAX_INSTRUCTIONS:,} at most; build with more MACs or deeper memories",
                               code="program-too-large", limit=_MAX_INSTRUCTIONS)
        header = _Header(
            format=_FORMAT, version=VERSION, name=self.name, config=self.config.to_dict(), board=self.board,
            data_beats=self.data_beats, write_start=self.write_start, tensors=dict(self.tensors),
            inputs=dict(self.inputs), outputs=dict(self.outputs), layers=self.layers,
            instruction_layers=_run_lengths(self.instruction_layers), density=self.density,
            winograd={name: tuple(shifts) for name, shifts in self.winograd.items()},
            streams={name: (one.length, one.made) for name, one in self.streams.items()}, model=self.model is not None)
        members = {
            "program.json": json.dumps(msgspec.to_builtins(header), indent=1).encode(),
            "code.bin": self.code, "data.bin": self.constants,
        }
        if self.model is not None:
            members["model.onnx"] = self.model
        # Weights hardly shrink, and take long to find that out.
        return write_archive(members, plain=("data.bin", "model.onnx"))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read a ``.npu`` file. Raises ProgramError for one that is truncated, damaged or something else.

        Memory is bounded by the file's size and the limits above.
        """
        try:
            if not is_zip(Path(path)):
                raise ProgramError(f"{path}: not a program; the command `compile` makes one of an ONNX model",
                                   code="not-a-program")
            with open_file(path) as file:
                return cls.parse(path, file, os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise ProgramError(f"{path}: {error.strerror or error}", code="unreadable-file", file=str(path)) from None

    @classmethod
    def parse(cls, path: Path | str, file: IO[bytes], size: int) -> Self:
        """As `load`, what is in ``file``, of ``size`` bytes; errors name it ``path``."""
        try:
            with zipfile.ZipFile(file) as archive:
                names = set(archive.namelist())
                if not {"program.json", "code.bin", "data.bin"} <= names:
                    raise ProgramError(f"{path}: not a program (a zip file without program.json, code.bin or data.bin)",
                                       code="not-a-program")
                header = read_member(archive, "program.json", _MAX_HEADER)
                kind = msgspec.json.decode(header, type=_Kind)
                code = read_member(archive, "code.bin", INSTRUCTION_BYTES * _MAX_INSTRUCTIONS)
                # Weights and model are stored as they are.
                constants = read_member(archive, "data.bin", size)
                model = read_member(archive, "model.onnx", size) if "model.onnx" in names else None
        except BAD_ARCHIVE as error:
            if isinstance(error, ProgramError):
                raise
            raise ProgramError(f"{path}: not a program, or damaged ({described(error)}); compile it again",
                               code="not-a-program") from None
        if kind.format != _FORMAT:
            raise ProgramError(f"{path}: not a program; compile a model to make one", code="not-a-program")
        if kind.version != VERSION:
            raise ProgramError(f"{path}: made for version {kind.version} of the instruction set, "
                               f"this is {VERSION}; compile it again", code="old-program", found=kind.version)
        try:
            return cls._from_header(msgspec.json.decode(header, type=_Header), code, constants, model)
        except ValueError as error:
            raise ProgramError(f"{path}: damaged ({error}); compile it again") from None

    @classmethod
    def _from_header(cls, header: _Header, code: bytes, constants: bytes, model: bytes | None) -> Self:
        """Raises ValueError for parts that do not fit each other."""
        config, layers, runs = NpuConfig.from_dict(header.config), header.layers, header.instruction_layers
        if len(code) % INSTRUCTION_BYTES or len(code) // INSTRUCTION_BYTES != sum(count for _, count in runs):
            raise ValueError("code and header differ in length")
        if any(layer >= len(layers) for layer, _ in runs):
            raise ValueError("an instruction belongs to a layer that is not there")
        if len(constants) > header.write_start * config.beat_bytes or header.write_start > header.data_beats:
            raise ValueError("constants do not fit the data region")
        if header.board is not None:
            get_board(header.board)
        if header.model not in (None, model is not None):
            raise ValueError("the model that it has is not that which was kept")
        if not header.winograd.keys() <= {layer.name for layer in layers}:
            raise ValueError("a layer that is not there has a Winograd form")
        if not header.streams.keys() <= {layer.name for layer in layers}:
            raise ValueError("a layer that is not there has streams")
        for name in (*header.inputs.values(), *header.outputs.values()):
            if name not in header.tensors:
                raise ValueError(f"tensor {name!r} has no place")
        beat = config.beat_bytes
        needed = aligned(len(constants) // beat, beat) + sum(
            aligned(place.beats(beat), beat) for place in header.tensors.values() if place.whole is None)
        if header.data_beats > needed:
            raise ValueError(f"a data region of {header.data_beats:,} beats for what takes {needed:,}")
        if header.data_beats * beat > 1 << config.address_width:
            raise ValueError("the data region is larger than the bus reaches")
        for name, place in header.tensors.items():
            if not header.write_start <= place.offset <= header.data_beats - place.beats(beat):
                raise ValueError(f"tensor {name!r} lies outside the data region")
            whole = None if place.whole is None else header.tensors.get(place.whole)
            if place.whole is not None and not (whole and place.lies_in(whole, beat)):
                raise ValueError(f"tensor {name!r} is no part of {place.whole!r}")
        return cls(
            name=header.name, config=config, code=code, constants=constants, data_beats=header.data_beats,
            write_start=header.write_start, tensors=header.tensors, inputs=header.inputs, outputs=header.outputs,
            layers=layers, instruction_layers=tuple(layer for layer, count in runs for _ in range(count)),
            density=header.density, winograd=header.winograd, model=model, board=header.board,
            streams={name: Streams(*one) for name, one in header.streams.items()})


def _run_lengths(values: tuple[int, ...]) -> list[tuple[int, int]]:
    """(value, count) of neighbouring equal values."""
    return [(value, len(list(run))) for value, run in groupby(values)]
