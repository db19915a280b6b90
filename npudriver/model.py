"""A deployed model: one program, or several with parts for the processor between them."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, Sequence

import numpy as np

from .device import Device
from .errors import PackageError
from .host import HostModel
from .machine import Machine
from .program import DeployedProgram
from .resident import ResidentProgram

__all__ = ["Deployment", "LoadedModel"]

_FORMAT, _VERSION = "npugen deployed model", 1
_HEADER, _MACHINE = "model.json", "machine.json"


@dataclass(frozen=True)
class Deployment:
    """What is in a folder that `python -m gen deploy` makes.

    ``inputs``: name -> dtype and shape of one sample; ``segments``: programs and files of ONNX models, in the order in
    which they run. ``device``: the URL of the device where no other is given.
    """

    name: str
    board: str
    device: str
    machine: Machine
    inputs: Mapping[str, tuple[str, Sequence[int]]]
    outputs: Sequence[str]
    segments: Sequence[DeployedProgram | Path]

    @classmethod
    def load(cls, folder: Path | str) -> Deployment:
        """Raises PackageError for a folder that holds none."""
        folder = Path(folder)
        try:
            header: dict[str, Any] = json.loads((folder / _HEADER).read_text())
            if (header.pop("format", None), header.pop("version", None)) != (_FORMAT, _VERSION):
                raise PackageError(f"{folder}: made by another version; deploy the model again")
            machine = Machine.from_json((folder / _MACHINE).read_text())
            segments: list[DeployedProgram | Path] = []
            for entry in header.pop("segments"):
                path = folder / Path(entry["path"]).name
                segments.append(DeployedProgram.load(path) if entry["place"] == "accelerator" else path)
            inputs = {name: (dtype, shape) for name, (dtype, shape) in header.pop("inputs").items()}
            return cls(machine=machine, segments=segments, inputs=inputs, **header)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise PackageError(f"{folder}: not a deployed model, or damaged ({error})") from None

    def save(self, folder: Path) -> None:
        """Write all but the ONNX models, whose files must be there already. Raises OSError."""
        segments = []
        for number, segment in enumerate(self.segments):
            host = isinstance(segment, Path)
            name = segment.name if isinstance(segment, Path) else f"program{number}"
            segments.append({"place": "host" if host else "accelerator", "path": name})
            if isinstance(segment, DeployedProgram):
                segment.save(folder / name)
        header = {"format": _FORMAT, "version": _VERSION, "name": self.name, "board": self.board,
                  "device": self.device, "inputs": {name: list(spec) for name, spec in self.inputs.items()},
                  "outputs": list(self.outputs), "segments": segments}
        (folder / _HEADER).write_text(json.dumps(header, indent=1) + "\n")
        (folder / _MACHINE).write_text(self.machine.to_json())

    def load_into(self, device: Device, *, slots: int = 2, threads: int = 0) -> LoadedModel:
        """``threads``: of the processor's part, 0 for as many as it has.

        Raises PackageError, OutOfMemoryError; nothing is left in the device then.
        """
        return LoadedModel(self, device, slots, threads)


class LoadedModel:
    """A model whose programs are in a device's memory."""

    def __init__(self, deployment: Deployment, device: Device, slots: int, threads: int) -> None:
        self.deployment, self.device, self._window = deployment, device, slots
        # First what may be missing, then what takes memory.
        hosts = {number: HostModel(segment, threads=threads) for number, segment in enumerate(deployment.segments)
                 if isinstance(segment, Path)}
        self.segments: list[ResidentProgram | HostModel] = []
        try:
            for number, segment in enumerate(deployment.segments):
                self.segments.append(hosts[number] if isinstance(segment, Path)
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
        if len(self.segments) == 1 and isinstance(only, ResidentProgram):
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


class _Walk:
    """A sample on its way through the segments: as far as it goes without waiting for the device."""

    def __init__(self, model: LoadedModel, inputs: Mapping[str, np.ndarray], timeout: float | None,
                 retries: int) -> None:
        for name in model.deployment.inputs:
            if name not in inputs:
                raise PackageError(f"input {name!r} is missing; the model's are {', '.join(model.deployment.inputs)}")
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
