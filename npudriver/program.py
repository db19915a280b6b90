"""A program as the driver runs it: files that need nothing but NumPy to be read.

``program.json`` (this module is its definition; it has the SHA-256 of the others and its own), ``code.bin``
(instructions), ``data.bin`` (packed weights and parameters, the data region's first beats) and ``arrays.npz`` (arrays
among the parameters of host steps).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

import numpy as np

from . import layout
from .arrays import arrays_in, packed_arrays
from .errors import PackageError
from .fields import Fields
from .machine import Machine
from .sealed import Sealed, sealed_json
from .steps import apply, step_problems

__all__ = ["DTYPES", "DeployedProgram", "Port", "Step", "layer_of"]

_FORMAT, _VERSION = "npugen deployed program", 3
_HEADER, _CODE, _DATA, _ARRAYS = "program.json", "code.bin", "data.bin", "arrays.npz"
_ARRAY = "array:"
#: Bytes that files may have: memory for reading a package is bounded by them, and by `Storage.room`.
_MAX_CODE, _MAX_DATA, _MAX_ARRAYS = 1 << 28, 1 << 30, 1 << 28
_WORD = (1 << 32) - 1
#: What an input or an output can be.
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64")


@dataclass(frozen=True)
class Step:
    """Work of the processor; see `npudriver.steps`."""

    kind: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Port:
    """An input or output of the model, and the tensor of the program that it is.

    ``dtype`` and ``shape`` (of one sample; of an input that is rearranged on its way, only the number of values counts)
    are the model's; ``tensor``: the feature map's name; ``map_shape``: (C, H, W) of it, at ``offset`` beats of the data
    region. ``steps`` lead from one to the other, samples on the first axis.
    """

    name: str
    dtype: str
    shape: Sequence[int]
    tensor: str
    map_shape: Sequence[int]
    offset: int
    interleaved: bool
    signs: bool
    steps: Sequence[Step]

    def encode(self, value: np.ndarray, beat_bytes: int) -> np.ndarray:
        """One sample in the model's type -> the tensor's bytes. Raises PackageError for one that does not fit."""
        x = np.asarray(value)
        if self.dtype == "float32" and x.dtype.kind == "f":
            x = x.astype(np.float32)
        if x.dtype != self.dtype:
            raise PackageError(f"input {self.name} must be {self.dtype}, not {x.dtype}", code="bad-input")
        if tuple(x.shape) != tuple(self.shape):
            wanted = " x ".join(map(str, self.shape))
            raise PackageError(f"input {self.name} must be one sample of {wanted}, not {' x '.join(map(str, x.shape))}",
                               code="bad-input")
        x = x[None]
        for step in self.steps:
            x = apply(step.kind, step.parameters, x)
        return layout.pack(x.reshape(self.map_shape), beat_bytes, interleaved=self.interleaved)

    def decode(self, data: np.ndarray, beat_bytes: int) -> np.ndarray:
        """The tensor's bytes -> one sample as the model gives it."""
        x = layout.unpack(data, self.map_shape, beat_bytes, signs=self.signs, interleaved=self.interleaved)[None]
        for step in self.steps:
            x = apply(step.kind, step.parameters, x)
        return x[0]

    def beats(self, beat_bytes: int) -> int:
        return layout.beats(self.map_shape, beat_bytes, signs=self.signs, interleaved=self.interleaved)

    def problem(self, beat_bytes: int, *, output: bool) -> str:
        """What is wrong with the steps, found by going through them once with zeros; "" if nothing."""
        wanted = tuple(self.shape), np.dtype(self.dtype)
        try:
            if output:
                found = self.decode(np.zeros(self.beats(beat_bytes) * beat_bytes, np.uint8), beat_bytes)
                fits = (found.shape, found.dtype) == wanted
            else:
                data = self.encode(np.zeros(*wanted), beat_bytes)
                fits = data.size == self.beats(beat_bytes) * beat_bytes and data.dtype == np.uint8
        except (ValueError, TypeError, LookupError, ArithmeticError, MemoryError, PackageError) as error:
            return " ".join(str(error).split())
        return "" if fits else "they do not lead to what it is"


def layer_of(index: int, runs: Sequence[Sequence[int]], layers: Sequence[str]) -> str:
    """The name of the layer of an instruction, "" of none. ``runs``: [layer, how many instructions in a row]."""
    end = 0
    for layer, count in runs:
        end += count
        if index < end:
            return layers[layer] if layer >= 0 else ""
    return ""


@dataclass(frozen=True)
class DeployedProgram:
    """``digest``: of the configuration it is compiled for."""

    name: str
    digest: int
    data_beats: int
    write_start: int
    inputs: Sequence[Port]
    outputs: Sequence[Port]
    layers: Sequence[str]
    #: [layer, how many instructions in a row are its]; -1 for those of none.
    instruction_layers: Sequence[Sequence[int]]
    code: bytes
    constants: bytes

    def files(self) -> dict[str, bytes]:
        """What there is in the program's folder: name -> content."""
        arrays: dict[str, np.ndarray] = {}
        header = {
            "format": _FORMAT, "version": _VERSION, "name": self.name, "digest": self.digest,
            "data_beats": self.data_beats, "write_start": self.write_start,
            "inputs": [_plain(port, arrays) for port in self.inputs],
            "outputs": [_plain(port, arrays) for port in self.outputs],
            "layers": list(self.layers), "instruction_layers": [list(run) for run in self.instruction_layers],
        }
        files = {_CODE: self.code, _DATA: self.constants}
        if arrays:
            files[_ARRAYS] = packed_arrays(arrays)
        return {_HEADER: sealed_json(header, files), **files}

    @classmethod
    def load(cls, package: Sealed, folder: str) -> DeployedProgram:
        """The program in a ``folder`` of a package. Raises PackageError where none is, or another than was written."""
        files = package.inner(f"{folder}/{_HEADER}", format=_FORMAT, version=_VERSION)
        header = files.header
        arrays = {}
        if files.lists(_ARRAYS):
            storage = package.storage
            arrays = arrays_in(files.read(_ARRAYS, _MAX_ARRAYS), files.where(_ARRAYS), limit=storage.room)
            storage.room -= sum(array.nbytes for array in arrays.values())
        layers = header.texts("layers")
        data_beats = header.integer("data_beats", 1, _WORD)
        program = cls(
            name=header.text("name"), digest=header.integer("digest", 0, _WORD), data_beats=data_beats,
            write_start=header.integer("write_start", 0, data_beats),
            inputs=[_port(entry, arrays) for entry in header.objects("inputs")],
            outputs=[_port(entry, arrays) for entry in header.objects("outputs")], layers=layers,
            instruction_layers=header.lists("instruction_layers", (-1, len(layers) - 1), (1, _WORD)),
            code=files.read(_CODE, _MAX_CODE), constants=files.read(_DATA, _MAX_DATA))
        header.end()
        return program

    def require_sense(self, machine: Machine) -> None:
        """Raises PackageError for sizes that do not go together, and for inputs and outputs beyond the data region."""
        beat = machine.beat_bytes
        instructions, rest = divmod(len(self.code), machine.instruction_bytes)
        named = sum(count for _, count in self.instruction_layers)
        if rest or not instructions or named not in (0, instructions) or not (
                0 <= self.write_start <= self.data_beats and len(self.constants) <= self.write_start * beat
                and self.data_beats * beat <= 1 << machine.address_bits):
            raise PackageError(f"program {self.name} is damaged: its sizes do not go together")
        for port in (*self.inputs, *self.outputs):
            if not self.write_start <= port.offset <= self.data_beats - port.beats(beat):
                raise PackageError(f"program {self.name} is damaged: {port.name} lies outside its data region")

    def require_steps(self, machine: Machine) -> None:
        """Raises PackageError for an input or an output whose steps do not lead from one end to the other."""
        for ports, output in ((self.inputs, False), (self.outputs, True)):
            for port in ports:
                problem = port.problem(machine.beat_bytes, output=output)
                if problem:
                    raise PackageError(f"program {self.name} is damaged: the steps of {port.name}: {problem}")


def _plain(port: Port, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """A port for JSON; arrays among its steps' parameters go to ``arrays``."""
    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays[f"a{len(arrays)}"] = value
            return f"{_ARRAY}a{len(arrays) - 1}"
        if isinstance(value, np.generic):
            return value.item()
        return list(value) if isinstance(value, tuple) else value

    values = {name: plain(value) for name, value in vars(port).items() if name != "steps"}
    steps = [{"kind": step.kind, "parameters": {name: plain(value) for name, value in step.parameters.items()}}
             for step in port.steps]
    return {**values, "steps": steps}


def _port(entry: Fields, arrays: Mapping[str, np.ndarray]) -> Port:
    steps = [_step(step, arrays) for step in entry.objects("steps")]
    port = Port(
        name=entry.text("name"), dtype=entry.choice("dtype", *DTYPES), shape=entry.shape("shape"),
        tensor=entry.text("tensor"), map_shape=entry.shape("map_shape", 3), offset=entry.integer("offset", 0, _WORD),
        interleaved=entry.flag("interleaved"), signs=entry.flag("signs"), steps=steps)
    entry.end()
    return port


def _step(entry: Fields, arrays: Mapping[str, np.ndarray]) -> Step:
    def whole(value: Any) -> Any:
        if isinstance(value, str) and value.startswith(_ARRAY):
            return arrays.get(value[len(_ARRAY):])
        return tuple(value) if isinstance(value, list) else value

    kind, written = entry.text("kind"), dict(entry.entries("parameters"))
    entry.end()
    parameters = {name: whole(value) for name, value in written.items()}
    if any(step_problems(kind, parameters)):
        raise entry.wrong("parameters", f"those of a step {kind!r}", written)
    return Step(kind, parameters)
