"""A model in segments: the ``.npu`` file that holds programs for the accelerator and models for the processor."""

import io
import json
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

import msgspec
from msgspec import Meta

from gen.files.archive import BAD_ARCHIVE, described, read_member, write_archive
from gen.files.read import open_file
from gen.files.write import write_file
from gen.program.program import Program, ProgramError

__all__ = ["ModelInputInfo", "SegmentsFile", "is_segments_file", "load_programs"]

_FORMAT, _VERSION = "npugen segments", 1
_HEADER = "segments.json"
_MAX_HEADER = 1 << 20
_MAX_SEGMENTS = 256
_SUFFIX = {"accelerator": "npu", "host": "onnx"}


class ModelInputInfo(msgspec.Struct, frozen=True):
    """``shape`` has 1 for the samples; ``dtype`` as NumPy names it."""

    name: str
    shape: tuple[Annotated[int, Meta(ge=1, le=1 << 32)], ...]
    dtype: Annotated[str, Meta(pattern="^(bool|u?int(8|16|32|64)|float(16|32|64))$")]


class _Header(msgspec.Struct):
    format: str
    version: int
    inputs: Annotated[tuple[ModelInputInfo, ...], Meta(min_length=1)]
    outputs: Annotated[tuple[str, ...], Meta(min_length=1)]
    segments: Annotated[tuple[Literal["accelerator", "host"], ...], Meta(min_length=1, max_length=_MAX_SEGMENTS)]


@dataclass(frozen=True, eq=False)
class SegmentsFile:
    """``segments`` in the order in which they run; the model of one for the processor is as onnx serialises it."""

    inputs: Sequence[ModelInputInfo]
    outputs: Sequence[str]
    segments: Sequence[Program | bytes]

    def save(self, path: Path) -> None:
        """Write a ``.npu`` file. The same segments give the same bytes. Raises ProgramError."""
        if len(self.segments) > _MAX_SEGMENTS:
            raise ProgramError(f"{path}: the model goes from accelerator to processor and back in {len(self.segments)} "
                               f"segments, where a program has {_MAX_SEGMENTS} at most",
                               code="program-too-large", limit=_MAX_SEGMENTS)
        places: list[Literal["accelerator", "host"]] = []
        members: dict[str, bytes | memoryview] = {}
        for number, segment in enumerate(self.segments):
            place: Literal["accelerator", "host"] = "accelerator" if isinstance(segment, Program) else "host"
            places.append(place)
            members[_member(number, place)] = segment.to_bytes(path) if isinstance(segment, Program) else segment
        header = _Header(_FORMAT, _VERSION, tuple(self.inputs), tuple(self.outputs), tuple(places))
        head = json.dumps(msgspec.to_builtins(header), indent=1).encode()
        try:
            write_file(path, write_archive({_HEADER: head, **members}, plain=members))
        except OSError as error:
            raise ProgramError(f"{path}: {error.strerror or error}", code="unreadable-file", file=str(path)) from None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read such a file. Raises ProgramError for one that is damaged, OSError."""
        try:
            with open_file(path) as file, zipfile.ZipFile(file) as archive:
                size = os.fstat(file.fileno()).st_size
                header = msgspec.json.decode(read_member(archive, _HEADER, _MAX_HEADER), type=_Header)
                if (header.format, header.version) != (_FORMAT, _VERSION):
                    raise ProgramError(f"{path}: made by another version of the compiler; compile it again",
                                       code="old-program")
                contents: list[bytes] = []
                for number, place in enumerate(header.segments):
                    # Members are stored as they are, so together they are no larger than the file.
                    left = size - sum(map(len, contents))
                    contents.append(read_member(archive, _member(number, place), left))
        except (*BAD_ARCHIVE, KeyError) as error:
            if isinstance(error, ProgramError):
                raise
            what = f"it has no member {error}" if isinstance(error, KeyError) else described(error)
            raise ProgramError(f"{path}: damaged ({what}); compile it again") from None
        return cls(header.inputs, header.outputs, [
            Program.parse(path, io.BytesIO(content), len(content)) if place == "accelerator" else content
            for place, content in zip(header.segments, contents, strict=True)])


def _member(number: int, place: Literal["accelerator", "host"]) -> str:
    return f"{number}.{_SUFFIX[place]}"


def is_segments_file(path: Path) -> bool:
    """Whether a file is one of these; not, where it cannot be read."""
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            return _HEADER in archive.namelist()
    except BAD_ARCHIVE:
        return False


def load_programs(path: Path) -> list[Program]:
    """What a ``.npu`` file has for the accelerator, in the order in which it runs. Raises ProgramError."""
    if not is_segments_file(path):
        return [Program.load(path)]
    return [segment for segment in SegmentsFile.load(path).segments if isinstance(segment, Program)]
