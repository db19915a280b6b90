"""Segments of a model that the processor runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Self

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from gen.ir.errors import GraphError
from gen.onnx.passes import bound_size, check, check_types, inline_functions, load_external
from gen.onnx.runtime import OnnxruntimeError, RuntimeModel
from gen.partition.limits import require_bounded
from gen.program.program import ProgramError

__all__ = ["HostSegment"]

#: What a model from within a program is put through. Not all that one of a file is: the batch of a segment's inputs is
#: no batch of samples where they are made by the segments before it.
_CHECKS = (partial(load_external, folder=None), bound_size, check, inline_functions, check_types)


@dataclass(frozen=True, eq=False)
class HostSegment:
    """``path``: the file that the ``model`` is from."""

    path: Path
    model: bytes

    @classmethod
    def checked(cls, path: Path, content: bytes) -> Self:
        """Of a program, which may not ask for other files, nor for time or memory without end. Raises ProgramError."""
        try:
            model = onnx.load_model_from_string(content)
            for apply in _CHECKS:
                model = apply(model)
            require_bounded(model)
        except (DecodeError, ValueError, TypeError) as error:
            reason = error if isinstance(error, GraphError) else "a model inside is none"
            raise ProgramError(f"{path}: damaged ({reason}); compile it again") from None
        return cls(path, model.SerializeToString(deterministic=True))

    @cached_property
    def _runtime(self) -> RuntimeModel:
        try:
            # What the model says, and not what comes close to it: quantised nodes may be among it.
            return RuntimeModel(self.model, optimised="basic")
        except OnnxruntimeError as error:
            raise OnnxruntimeError.of(error, f"{self.path}: the processor's part: {error}") from None

    @property
    def inputs(self) -> tuple[str, ...]:
        return self._runtime.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self._runtime.outputs)

    def run(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name, of one sample. Raises GraphError when onnxruntime fails."""
        try:
            return dict(zip(self.outputs, self._runtime.run(values), strict=True))
        except OnnxruntimeError as error:
            raise GraphError.of(error, f"{self.path}: the processor's part fails on this sample: {error}") from None

    def of_sample(self, name: str, value: np.ndarray) -> np.ndarray:
        """An output without the axis of the samples: the first one, if it is known to be 1 for one sample."""
        return value[0] if self._runtime.outputs[name][:1] == (1,) else value
