"""A program as it is deployed: a folder that needs nothing but NumPy to be read.

``program.json`` (this module is its definition), ``code.bin`` (instructions), ``data.bin`` (packed weights and
parameters, the data region's first beats) and ``arrays.npz`` (arrays among the parameters of host steps).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np

from . import layout
from .arrays import read_arrays
from .errors import PackageError
from .steps import apply

__all__ = ["DeployedProgram", "Port", "Step", "layer_of"]

_FORMAT, _VERSION = "npugen deployed program", 1
_ARRAY = "array:"


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
            raise PackageError(f"input {self.name} must be {self.dtype}, not {x.dtype}")
        if tuple(x.shape) != tuple(self.shape):
            wanted = " x ".join(map(str, self.shape))
            raise PackageError(f"input {self.name} must be one sample of {wanted}, not {' x '.join(map(str, x.shape))}")
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
    """``digest``: of the configuration it is compiled for; ``cycles``: of an inference, by the time model."""

    name: str
    digest: int
    data_beats: int
    write_start: int
    cycles: int
    inputs: Sequence[Port]
    outputs: Sequence[Port]
    layers: Sequence[str]
    #: [layer, how many instructions in a row are its]; -1 for those of none.
    instruction_layers: Sequence[Sequence[int]]
    code: bytes
    constants: bytes

    def save(self, folder: Path) -> None:
        """Write the files into a folder, which is made. Raises OSError."""
        arrays: dict[str, np.ndarray] = {}
        header = {
            "format": _FORMAT, "version": _VERSION, "name": self.name, "digest": self.digest,
            "data_beats": self.data_beats, "write_start": self.write_start, "cycles": self.cycles,
            "inputs": [_plain(port, arrays) for port in self.inputs],
            "outputs": [_plain(port, arrays) for port in self.outputs],
            "layers": list(self.layers), "instruction_layers": [list(run) for run in self.instruction_layers],
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "program.json").write_text(json.dumps(header, indent=1) + "\n")
        (folder / "code.bin").write_bytes(self.code)
        (folder / "data.bin").write_bytes(self.constants)
        if arrays:
            np.savez_compressed(folder / "arrays.npz", **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, folder: Path) -> DeployedProgram:
        """Raises PackageError for a folder that does not hold one."""
        try:
            header = json.loads((folder / "program.json").read_text())
            if (header.pop("format", None), header.pop("version", None)) != (_FORMAT, _VERSION):
                raise PackageError(f"{folder}: made by another version; deploy the program again")
            path = folder / "arrays.npz"
            arrays = read_arrays(path) if path.is_file() else {}
            for side in ("inputs", "outputs"):
                header[side] = [_port(entry, arrays) for entry in header[side]]
            return cls(code=(folder / "code.bin").read_bytes(), constants=(folder / "data.bin").read_bytes(), **header)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise PackageError(f"{folder}: not a deployed program, or damaged ({error})") from None


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


def _port(entry: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Port:
    def whole(value: Any) -> Any:
        if isinstance(value, str) and value.startswith(_ARRAY):
            return arrays[value[len(_ARRAY):]]
        return value

    steps = [Step(step["kind"], {name: whole(value) for name, value in step["parameters"].items()})
             for step in entry.pop("steps")]
    return Port(steps=steps, **entry)
