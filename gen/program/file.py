"""``.npu`` files: a package as the driver runs it, in one file, with what the compiler knows of each program beside it.

The driver's part (`npudriver.model`, `npudriver.program`) has all that a board needs. Each program has two more files
in its folder: ``compiled.json``, which this module defines, and ``model.onnx``, the model to compare with.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Self

import msgspec
from msgspec import Meta

from boards.registry import BoardError, get_board
from cores.arch.isa import INSTRUCTION_BYTES
from cores.arch.numerics import POSITIONS
from cores.arch.registers import VERSION
from cores.config import NpuConfig
from cores.device import driver_machine
from gen.files.read import is_zip
from gen.files.write import write_file
from gen.memory.placement import Placement, aligned
from gen.program.program import MAX_BATCH, LayerInfo, Natural, Program, ProgramError
from npudriver import DeployedProgram, Deployment, HostFile, PackageError
from npudriver.archive import write_archive
from npudriver.model import MAX_SEGMENTS, program_folder
from npudriver.storage import Archive
from sim.stochastic.streams import Streams

__all__ = ["ProgramFile", "load_program", "save_program"]

_FORMAT = "npugen compiled program"
_COMPILED, _MODEL = "compiled.json", "model.onnx"
#: Limits, far beyond what compiled networks need (MobileNetV2: 20 KB, 14,087).
_MAX_HEADER = 1 << 24
_MAX_INSTRUCTIONS = 1 << 21
_MAX_MODEL = (1 << 31) - 1
#: Codes of the driver's errors -> ours, where it is not that of a damaged program.
_CODES = {"old-package": "old-program", "not-a-program": "not-a-program", "unreadable-file": "unreadable-file"}


class _Kind(msgspec.Struct):
    """Of a header, what is the same in every version."""

    format: str = ""
    version: int = 0


class _Compiled(_Kind, kw_only=True):
    """``compiled.json``: types and ranges are checked when it is read, what belongs together afterwards."""

    config: dict[str, Natural]
    tensors: dict[str, Placement]
    layers: Annotated[tuple[LayerInfo, ...], Meta(min_length=1)]
    density: Annotated[float, Meta(gt=0, le=1)] | None = None
    winograd: dict[str, Annotated[tuple[Annotated[int, Meta(ge=0, le=2)], ...],
                                  Meta(min_length=POSITIONS, max_length=POSITIONS)]] = {}
    #: Length and bits made.
    streams: dict[str, tuple[Natural, Natural]] = {}
    batch: Annotated[int, Meta(ge=1, le=MAX_BATCH)] = 1
    #: Whether the ONNX model is kept.
    model: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class ProgramFile:
    """A compiled model: programs for the accelerator and ONNX models for the processor, in the order in which they run.

    ``inputs``: name -> dtype, as NumPy names it, and shape of one sample. ``board``: that it was compiled for, if one.
    """

    name: str
    inputs: Mapping[str, tuple[str, Sequence[int]]]
    outputs: Sequence[str]
    segments: Sequence[Program | bytes]
    board: str | None = None

    @classmethod
    def of(cls, program: Program) -> Self:
        """One that the accelerator runs as a whole."""
        return cls(name=program.name, board=program.board, segments=[program], outputs=list(program.outputs),
                   inputs={port.name: (port.dtype, port.shape) for port in program.input_ports})

    @property
    def programs(self) -> list[Program]:
        """What the accelerator runs."""
        return [segment for segment in self.segments if isinstance(segment, Program)]

    def deployment(self, *, name: str | None = None, board: str | None = None, device: str = "") -> Deployment:
        """As the driver has it; ``device``: where that looks for the device where no other is given."""
        return Deployment(
            name=name or self.name, board=board or self.board or "", device=device,
            machine=driver_machine(self.programs[0].config), inputs=self.inputs, outputs=self.outputs,
            segments=[segment.deployed if isinstance(segment, Program) else HostFile(f"segment{number}.onnx", segment)
                      for number, segment in enumerate(self.segments)])

    def save(self, path: Path) -> None:
        """Write a ``.npu`` file, as `write_file` does. The same segments give the same bytes. Raises ProgramError."""
        if len(self.segments) > MAX_SEGMENTS:
            raise ProgramError(f"{path}: the model goes from accelerator to processor and back in {len(self.segments)} "
                               f"segments, where a program has {MAX_SEGMENTS} at most",
                               code="program-too-large", limit=MAX_SEGMENTS)
        for program in self.programs:
            if len(program.instruction_layers) > _MAX_INSTRUCTIONS:
                raise ProgramError(f"{path}: {len(program.instruction_layers):,} instructions, where a program has "
                                   f"{_MAX_INSTRUCTIONS:,} at most; build with more MACs or deeper memories",
                                   code="program-too-large", limit=_MAX_INSTRUCTIONS)
        device = "" if self.board is None else get_board(self.board).driver_device
        files = self.deployment(device=device).files()
        for number, segment in enumerate(self.segments):
            if isinstance(segment, Program):
                folder = program_folder(number)
                files[f"{folder}/{_COMPILED}"] = _header(segment)
                if segment.model is not None:
                    files[f"{folder}/{_MODEL}"] = segment.model
        try:
            # Stored as they are: what is read of a file is no larger than it, and weights hardly shrink.
            write_file(path, write_archive(files, plain=files))
        except OSError as error:
            raise ProgramError(f"{path}: {error.strerror or error}", code="unreadable-file", file=str(path)) from None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read such a file. Raises ProgramError for one that is truncated, damaged or something else.

        Memory is bounded by the file's size and the limits above.
        """
        try:
            if not is_zip(path):
                raise ProgramError(f"{path}: not a program; the command `compile` makes one of an ONNX model",
                                   code="not-a-program")
        except OSError as error:
            raise ProgramError(f"{path}: {error.strerror or error}", code="unreadable-file", file=str(path)) from None
        try:
            with Archive(path) as archive:
                return cls._read(path, archive)
        except PackageError as error:
            raise ProgramError(str(error), code=_CODES.get(error.code, ""), file=str(path)) from None

    @classmethod
    def _read(cls, path: Path, archive: Archive) -> Self:
        package = Deployment.read(archive)
        board = package.board or None
        segments: list[Program | bytes] = []
        try:
            if board is not None:
                get_board(board)
            for number, segment in enumerate(package.segments):
                segments.append(segment.content if isinstance(segment, HostFile)
                                else _program(path, archive, program_folder(number), segment, board))
            file = cls(name=package.name, board=board, inputs=package.inputs, outputs=package.outputs,
                       segments=segments)
            file._require_one_machine(path, package)
        except ProgramError:
            raise
        except BoardError as error:     # of whoever compiled it
            raise ProgramError(f"{path}: compiled for an {error}", code=error.code, file=str(path)) from None
        except ValueError as error:
            raise ProgramError(f"{path}: damaged ({error}); compile it again") from None
        return file

    def _require_one_machine(self, path: Path, package: Deployment) -> None:
        """Raises ValueError; ProgramError for what was right when another version wrote it."""
        if not self.programs:
            raise ValueError("the accelerator has no part of it")
        for program in self.programs:
            machine = driver_machine(program.config)
            # Operations and errors are added to the tables; the machine itself stays.
            if machine != package.machine == replace(machine, operations=package.machine.operations,
                                                     errors=package.machine.errors):
                raise ProgramError(f"{path}: written by another version of npugen; compile it again",
                                   code="old-program", file=str(path))
            if machine != package.machine:
                raise ValueError("the segments are not of one machine")


def save_program(program: Program, path: Path | str) -> None:
    """`ProgramFile.save`, of a model that the accelerator runs as a whole."""
    ProgramFile.of(program).save(Path(path))


def load_program(path: Path | str) -> Program:
    """As `ProgramFile.load`, of one that the accelerator runs as a whole."""
    segments = ProgramFile.load(Path(path)).segments
    if len(segments) > 1 or not isinstance(segments[0], Program):
        raise ProgramError(f"{path}: a part of the model is the processor's")
    return segments[0]


def _header(program: Program) -> bytes:
    header = _Compiled(
        format=_FORMAT, version=VERSION, config=program.config.to_dict(), tensors=dict(program.tensors),
        layers=program.layers, density=program.density,
        winograd={name: tuple(shifts) for name, shifts in program.winograd.items()},
        streams={name: (one.length, one.made) for name, one in program.streams.items()},
        batch=program.batch, model=program.model is not None)
    return json.dumps(msgspec.to_builtins(header), indent=1).encode()


def _program(path: Path, archive: Archive, folder: str, deployed: DeployedProgram, board: str | None) -> Program:
    """What the compiler knows of a program. Raises ProgramError, PackageError, ValueError for what does not fit."""
    content = archive.read(f"{folder}/{_COMPILED}", _MAX_HEADER)
    kind = msgspec.json.decode(content, type=_Kind)
    if kind.format != _FORMAT:
        raise ProgramError(f"{path}: not a program; compile a model to make one", code="not-a-program")
    if kind.version != VERSION:
        raise ProgramError(f"{path}: made for version {kind.version} of the instruction set, "
                           f"this is {VERSION}; compile it again", code="old-program", found=kind.version)
    header = msgspec.json.decode(content, type=_Compiled)
    model = archive.read(f"{folder}/{_MODEL}", _MAX_MODEL) if header.model else None
    config = NpuConfig.from_dict(header.config)
    _require_sense(header, config, deployed)
    return Program(
        name=deployed.name, config=config, code=deployed.code, constants=deployed.constants,
        data_beats=deployed.data_beats, write_start=deployed.write_start, tensors=header.tensors,
        input_ports=tuple(deployed.inputs), output_ports=tuple(deployed.outputs), layers=header.layers,
        instruction_layers=tuple(layer for layer, count in deployed.instruction_layers for _ in range(count)),
        density=header.density, winograd=header.winograd, batch=header.batch, model=model, board=board,
        streams={name: Streams(*one) for name, one in header.streams.items()})


def _require_sense(header: _Compiled, config: NpuConfig, program: DeployedProgram) -> None:
    """Raises ValueError for parts that do not fit each other."""
    if program.digest != config.digest:
        raise ValueError("its program is of another configuration")
    names = {layer.name for layer in header.layers}
    if [layer.name for layer in header.layers] != list(program.layers):
        raise ValueError("its layers are not those of the compiler")
    instructions = len(program.code) // INSTRUCTION_BYTES
    if instructions > _MAX_INSTRUCTIONS:
        raise ValueError(f"{instructions:,} instructions, where there are {_MAX_INSTRUCTIONS:,} at most")
    if instructions != sum(count for _, count in program.instruction_layers):
        raise ValueError("code and header differ in length")
    if not header.winograd.keys() <= names:
        raise ValueError("a layer that is not there has a Winograd form")
    if not header.streams.keys() <= names:
        raise ValueError("a layer that is not there has streams")
    beat = config.beat_bytes
    needed = aligned(len(program.constants) // beat, beat) + sum(
        aligned(place.beats(beat), beat) for place in header.tensors.values() if place.whole is None)
    if program.data_beats > needed:
        raise ValueError(f"a data region of {program.data_beats:,} beats for what takes {needed:,}")
    for port in (*program.inputs, *program.outputs):
        place = header.tensors.get(port.tensor)
        if place is None:
            raise ValueError(f"tensor {port.tensor!r} has no place")
        if (port.offset, tuple(port.map_shape), port.signs, port.interleaved) != (
                place.offset, place.shape, place.signs, place.interleaved):
            raise ValueError(f"{port.name!r} is not where tensor {port.tensor!r} lies")
    for name, place in header.tensors.items():
        if not program.write_start <= place.offset <= program.data_beats - place.beats(beat):
            raise ValueError(f"tensor {name!r} lies outside the data region")
        whole = None if place.whole is None else header.tensors.get(place.whole)
        if place.whole is not None and not (whole and place.lies_in(whole, beat)):
            raise ValueError(f"tensor {name!r} is no part of {place.whole!r}")
