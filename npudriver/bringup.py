"""Small programs with known answers, by which a board's machine is checked engine by engine.

They are made for one machine, by `python -m gen deploy`, and lie in one file: a board needs no compiler.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

from .archive import write_archive
from .errors import PackageError
from .fields import Fields
from .machine import Machine
from .sealed import Sealed, is_plain, sealed_json
from .storage import Archive

__all__ = ["BRINGUP", "BringUp", "Trial"]

#: Its name in a package.
BRINGUP = "bringup.zip"
_FORMAT, _VERSION = "npugen bring-up programs", 1
_HEADER, _MACHINE = "bringup.json", "machine.json"
_MAX_MACHINE, _MAX_PART = 1 << 20, 1 << 24
#: Bytes that memory may have for a program and its data.
_MAX_BEATS, _MAX_TRIALS = 1 << 20, 64


@dataclass(frozen=True)
class Trial:
    """A program of one engine, by itself.

    ``name``: of the engine; ``text``: what it does; ``code``: instructions; ``data``: of the data region from its first
    beat on, constants and inputs, zero where results are to be; ``data_beats``: all of it; ``write_start``: first beat
    that it may write. From beat ``output`` on it leaves ``expected``: ``shape`` blocks, rows and columns of beats.
    ``source``: the beat of an input that a program only copies, -1 for others.
    """

    name: str
    text: str
    code: bytes
    data: bytes
    data_beats: int
    write_start: int
    output: int
    shape: Sequence[int]
    expected: bytes
    source: int = -1


@dataclass(frozen=True)
class BringUp:
    """Programs for ``machine``, from what needs least of it to what needs most."""

    machine: Machine
    trials: Sequence[Trial]

    def content(self) -> bytes:
        """Of the file; the same programs give the same bytes."""
        files: dict[str, bytes] = {_MACHINE: self.machine.to_json().encode()}
        entries = []
        for trial in self.trials:
            entries.append({"name": trial.name, "text": trial.text, "data_beats": trial.data_beats,
                            "write_start": trial.write_start, "output": trial.output, "shape": list(trial.shape),
                            "source": trial.source})
            files.update({f"{trial.name}/{part}": getattr(trial, part) for part in ("code", "data", "expected")})
        header = sealed_json({"format": _FORMAT, "version": _VERSION, "trials": entries}, files)
        members = {_HEADER: header, **files}
        return bytes(write_archive(members, plain=members))     # what is read of a file is no larger than it

    @classmethod
    def load(cls, path: Path) -> BringUp:
        """Raises PackageError for a file that holds none, or another than was written."""
        archive = Archive(path)
        archive.remedy = "deploy the model again"
        with archive:
            if _HEADER not in archive.names:
                raise PackageError(f"{path}: holds no bring-up programs; {archive.remedy}")
            files = Sealed.of(archive, _HEADER, format=_FORMAT, version=_VERSION)
            machine = Machine.from_json(files.read(_MACHINE, _MAX_MACHINE), files.where(_MACHINE), archive.remedy)
            trials: list[Trial] = []
            for entry in files.header.objects("trials"):
                trials.append(_trial(entry, files, machine))
                if len(trials) > _MAX_TRIALS or len({trial.name for trial in trials}) < len(trials):
                    raise PackageError(f"{path}: has too many programs, or two of a name; {archive.remedy}")
            files.header.end()
        return cls(machine, trials)

    @staticmethod
    def is_one(path: Path) -> bool:
        """Whether a file holds such programs. Raises PackageError for one that is no archive."""
        with Archive(path) as archive:
            return _HEADER in archive.names


def _trial(entry: Fields, files: Sealed, machine: Machine) -> Trial:
    name, beat = entry.text("name"), machine.beat_bytes
    if not is_plain(name):
        raise entry.wrong("name", "a plain name", name)
    beats = entry.integer("data_beats", 1, _MAX_BEATS)
    trial = Trial(
        name=name, text=entry.text("text"), data_beats=beats, write_start=entry.integer("write_start", 0, beats),
        output=entry.integer("output", 0, beats), shape=entry.shape("shape", 3),
        source=entry.integer("source", -1, beats),
        **{part: files.read(f"{name}/{part}", _MAX_PART) for part in ("code", "data", "expected")})
    entry.end()
    blocks, rows, cols = trial.shape
    size = len(trial.expected)
    if (not trial.code or len(trial.code) % machine.instruction_bytes or len(trial.data) > beats * beat
            or size != blocks * rows * cols * beat
            or trial.output < trial.write_start or any(trial.data[trial.output * beat:trial.output * beat + size])
            or trial.output * beat + size > beats * beat
            or (trial.source >= 0 and trial.source * beat + size > len(trial.data))):
        raise entry.wrong("trials", "programs whose sizes go together", name)
    return trial
