"""A deployed model: one program, or several with parts for the processor between them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, Sequence

import numpy as np

from .device import Device
from .errors import PackageError
from .fields import Fields
from .files import read_file
from .host import HostModel
from .machine import Machine
from .program import DTYPES, DeployedProgram
from .resident import ResidentProgram
from .sealed import Sealed, is_plain, sealed_json
from .storage import Archive, Source, Storage, open_storage

__all__ = ["MAX_SEGMENTS", "Deployment", "HostFile", "LoadedModel", "program_folder"]

_FORMAT, _VERSION = "npugen deployed model", 3
_HEADER, _MACHINE, _PROGRAM = "model.json", "machine.json", "program.json"
_MAX_MACHINE = 1 << 20
#: Segments that a model can have.
MAX_SEGMENTS = 256
#: What ``.npu`` files of earlier versions have in place of the header.
_EARLIER = {"program.json", "segments.json"}


@dataclass(frozen=True)
class HostFile:
    """An ONNX model for the processor, of that ``name`` in its package."""

    name: str
    source: Source

    @property
    def content(self) -> bytes:
        """Raises OSError."""
        return self.source if isinstance(self.source, bytes) else read_file(self.source)


@dataclass(frozen=True)
class Deployment:
    """A model for a board: what is in a folder that `python -m gen deploy` makes, and in a ``.npu`` file.

    ``inputs``: name -> dtype and shape of one sample; ``segments``: programs and models for the processor, in the order
    in which they run. ``device``: the URL of the device where no other is given.
    """

    name: str
    board: str
    device: str
    machine: Machine
    inputs: Mapping[str, tuple[str, Sequence[int]]]
    outputs: Sequence[str]
    segments: Sequence[DeployedProgram | HostFile]

    @staticmethod
    def machine_of(path: Path | str) -> Machine:
        """The machine alone that a deployed model is for. Raises PackageError as `load`."""
        with open_storage(Path(path)) as storage:
            return _machine(_sealed(storage))

    @classmethod
    def load(cls, path: Path | str) -> Deployment:
        """Raises PackageError for a folder or a file that holds none, or another than was written."""
        with open_storage(Path(path)) as storage:
            return cls.read(storage)

    @classmethod
    def read(cls, storage: Storage) -> Deployment:
        """As `load`, of what is open already."""
        files = _sealed(storage)
        header = files.header
        machine = _machine(files)
        inputs = header.inner("inputs")
        segments: list[DeployedProgram | HostFile] = []
        read: set[str] = set()
        for entry in header.objects("segments"):
            place, name = entry.choice("place", "accelerator", "host"), entry.text("path")
            entry.end()
            if not is_plain(name):
                raise entry.wrong("path", "a name in the package", name)
            if name in read:
                raise entry.wrong("path", "that of no other segment", name)
            if len(read) == MAX_SEGMENTS:
                raise PackageError(f"{files.where(_HEADER)}: has more than {MAX_SEGMENTS} segments; {storage.remedy}")
            read.add(name)
            if place == "host":
                segments.append(HostFile(name, files.source(name)))
                continue
            program = DeployedProgram.load(files, name)
            try:
                program.require_sense(machine)
            except PackageError as error:
                raise PackageError.of(error, f"{storage.path}: {error}; {storage.remedy}") from None
            segments.append(program)
        deployment = cls(
            name=header.text("name"), board=header.text("board"), device=header.text("device"), machine=machine,
            inputs={name: _dtype_and_shape(inputs.take(name), inputs, name, files.where(_HEADER), storage.remedy)
                    for name in inputs.names()},
            outputs=header.texts("outputs"), segments=segments)
        header.end()
        if not (segments and deployment.inputs and deployment.outputs):
            raise PackageError(f"{files.where(_HEADER)}: has no segments, inputs or outputs; {storage.remedy}")
        return deployment

    def files(self) -> dict[str, bytes]:
        """The files of the package: name -> content. Raises OSError for models of the processor that are gone."""
        segments: list[dict[str, str]] = []
        sealed, files = {_MACHINE: self.machine.to_json().encode()}, {}
        for number, segment in enumerate(self.segments):
            if isinstance(segment, HostFile):
                segments.append({"place": "host", "path": segment.name})
                sealed[segment.name] = segment.content
                continue
            folder = program_folder(number)
            segments.append({"place": "accelerator", "path": folder})
            files.update({f"{folder}/{name}": content for name, content in segment.files().items()})
            sealed[f"{folder}/{_PROGRAM}"] = files[f"{folder}/{_PROGRAM}"]
        header = {"format": _FORMAT, "version": _VERSION, "name": self.name, "board": self.board,
                  "device": self.device, "inputs": {name: list(spec) for name, spec in self.inputs.items()},
                  "outputs": list(self.outputs), "segments": segments}
        return {_HEADER: sealed_json(header, sealed), **sealed, **files}

    def save(self, folder: Path) -> None:
        """Write the files into a folder. Raises OSError."""
        for name, content in self.files().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)

    def load_into(self, device: Device, *, slots: int = 2, threads: int = 0) -> LoadedModel:
        """``threads``: of the processor's part, 0 for as many as it has.

        Raises PackageError, OutOfMemoryError; nothing is left in the device then.
        """
        return LoadedModel(self, device, slots, threads)


def program_folder(number: int) -> str:
    """Of a segment's program, in a package."""
    return f"program{number}"


def _sealed(storage: Storage) -> Sealed:
    if isinstance(storage, Archive) and _HEADER not in storage.names:
        if storage.names & _EARLIER:
            raise PackageError(f"{storage.path}: made by another version of the compiler; {storage.remedy}",
                               code="old-package")
        raise PackageError(f"{storage.path}: not a program (a zip file without {_HEADER})", code="not-a-program")
    return Sealed.of(storage, _HEADER, format=_FORMAT, version=_VERSION)


def _machine(files: Sealed) -> Machine:
    return Machine.from_json(files.read(_MACHINE, _MAX_MACHINE), files.where(_MACHINE), files.storage.remedy)


def _dtype_and_shape(value: Any, entry: Fields, name: str, where: str, remedy: str) -> tuple[str, Sequence[int]]:
    if not isinstance(value, list) or len(value) != 2:
        raise entry.wrong(name, "a type and a shape", value)
    inner = Fields({"type": value[0], "shape": value[1]}, f"{where}: input {name}", remedy)
    return inner.choice("type", *DTYPES), inner.shape("shape")


class LoadedModel:
    """A model whose programs are in a device's memory."""

    def __init__(self, deployment: Deployment, device: Device, slots: int, threads: int) -> None:
        self.deployment, self.device, self._window = deployment, device, slots
        # First what may be missing, then what takes memory.
        hosts = {number: HostModel(segment.name, segment.source, threads=threads)
                 for number, segment in enumerate(deployment.segments) if isinstance(segment, HostFile)}
        _require_ways(deployment, hosts)
        self.segments: list[ResidentProgram | HostModel] = []
        try:
            for number, segment in enumerate(deployment.segments):
                self.segments.append(hosts[number] if isinstance(segment, HostFile)
                                     else device.load(segment, slots=slots))
        except BaseException:
            self.unload()
            raise

    def __enter__(self) -> LoadedModel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.unload()

    def unload(self) -> None:
        """Give the device's memory back. Once more is no error."""
        for segment in self.segments:
            if isinstance(segment, ResidentProgram):
                segment.unload()

    def run(self, inputs: Mapping[str, np.ndarray], *, timeout: float | None = None,
            retries: int = 0) -> dict[str, np.ndarray]:
        """The outputs of one sample. Raises as `ResidentProgram.run`, and PackageError for the processor's part."""
        return next(self.stream([inputs], timeout=timeout, retries=retries))

    def stream(self, samples: Iterable[Mapping[str, np.ndarray]], *, timeout: float | None = None,
               retries: int = 0) -> Iterator[dict[str, np.ndarray]]:
        """As `ResidentProgram.stream`; the processor's part of a sample runs while the device is at the next."""
        if retries < 0:
            raise ValueError(f"retries must be 0 or more, not {retries}")
        only = self.segments[0]
        if len(self.segments) == 1 and isinstance(only, ResidentProgram) and (
                list(only.outputs) == list(self.deployment.outputs)):
            yield from only.stream(samples, timeout=timeout, retries=retries)
            return
        under_way: deque[_Walk] = deque()
        try:
            for inputs in samples:
                if len(under_way) == self._window:
                    yield under_way.popleft().finish()
                under_way.append(_Walk(self, inputs, timeout, retries))
            while under_way:
                yield under_way.popleft().finish()
        finally:
            for walk in under_way:
                walk.abort()


def _require_ways(deployment: Deployment, hosts: Mapping[int, HostModel]) -> None:
    """Raises PackageError for a segment whose inputs nothing makes, and outputs that nothing makes."""
    made = set(deployment.inputs)

    def require(names: Iterable[str], what: str) -> None:
        for name in names:
            if name not in made:
                raise PackageError(f"model {deployment.name} is damaged: {name!r}, {what}, is made by nothing; deploy "
                                   "it again")

    for number, segment in enumerate(deployment.segments):
        if isinstance(segment, DeployedProgram):
            inputs, outputs = ([port.name for port in ports] for ports in (segment.inputs, segment.outputs))
        else:
            inputs, outputs = hosts[number].inputs, list(hosts[number].outputs)
        require(inputs, f"an input of segment {number}")
        made.update(outputs)
    require(deployment.outputs, "an output")


class _Walk:
    """A sample on its way through the segments: as far as it goes without waiting for the device."""

    def __init__(self, model: LoadedModel, inputs: Mapping[str, np.ndarray], timeout: float | None,
                 retries: int) -> None:
        for name in model.deployment.inputs:
            if name not in inputs:
                raise PackageError(f"input {name!r} is missing; the model's are {', '.join(model.deployment.inputs)}",
                                   code="bad-input")
        self._model, self._timeout, self._retries = model, timeout, retries
        self._values = {name: np.asarray(value)[None] for name, value in inputs.items()}    # samples first
        self._outputs = dict(inputs)
        self._next, self._waiting = 0, False
        self._go_on()

    def _go_on(self) -> None:
        """Run what the processor has to, up to the next inference that is under way, or the end."""
        segments = self._model.segments
        while self._next < len(segments):
            segment = segments[self._next]
            if isinstance(segment, ResidentProgram):
                self._given = {name: self._values[name][0] for name in segment.inputs}
                self._inference = segment.submit(self._given)
                self._waiting = True
                return
            made = segment.run(self._values)
            self._values.update(made)
            self._outputs.update((name, value[0] if segment.outputs[name] else value) for name, value in made.items())
            self._next += 1

    def finish(self) -> dict[str, np.ndarray]:
        while self._waiting:
            segment = self._model.segments[self._next]
            assert isinstance(segment, ResidentProgram)
            made = segment.settle(self._inference, self._given, self._timeout, self._retries)
            self._waiting = False
            self._outputs.update(made)
            self._values.update((name, value[None]) for name, value in made.items())
            self._next += 1
            self._go_on()
        return {name: self._outputs[name] for name in self._model.deployment.outputs}

    def abort(self) -> None:
        if self._waiting:
            self._inference.abort()
