"""Parts of a model that the processor runs, by onnxruntime where it is installed."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Mapping

import numpy as np

from .errors import PackageError
from .storage import Source

__all__ = ["NO_RUNTIME_32", "HostModel"]

#: Why the processor's part does not run on a processor of 32 bits, and where it does.
NO_RUNTIME_32 = ("there is no onnxruntime wheel for 32-bit ARM: let the board serve its device (python3 -m npudriver "
                 "serve), and run the package on a computer (python3 run.py --device tcp://BOARD)")
_WORD = (1 << 32) - 1


class HostModel:
    """An ONNX model, in a file or its content, called ``name`` in errors; ``threads``: 0 for as many as the processor
    has.

    Raises PackageError where onnxruntime is missing, or does not take it.
    """

    def __init__(self, name: str, source: Source, *, threads: int = 0) -> None:
        try:
            runtime: Any = importlib.import_module("onnxruntime")
        except ImportError:
            raise PackageError("a part of this model runs on the processor, by onnxruntime, which is missing here: " + (
                "pip install onnxruntime" if sys.maxsize > _WORD else NO_RUNTIME_32), code="missing-package") from None
        self._name = name
        try:
            options = runtime.SessionOptions()
            options.log_severity_level = 4
            options.intra_op_num_threads = threads
            # All its weights are inside: it reads no other files, which nothing has a digest of.
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
            # What the model says, and not what comes close to it.
            options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
            self._session = runtime.InferenceSession(source if isinstance(source, bytes) else str(source), options,
                                                     providers=["CPUExecutionProvider"])
        except Exception as error:      # onnxruntime's own exception types are not public
            raise PackageError(f"{name}: onnxruntime does not take it ({_line(error)})", code="onnxruntime") from None
        self.inputs = [value.name for value in self._session.get_inputs()]
        #: Output -> whether its first axis is known to be 1 for one sample.
        self.outputs = {value.name: list(value.shape[:1]) == [1] for value in self._session.get_outputs()}

    def run(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs of one sample, whose axis the values have. Raises PackageError."""
        try:
            made = self._session.run(list(self.outputs), {name: values[name] for name in self.inputs})
        except Exception as error:
            raise PackageError(f"{self._name}: onnxruntime does not run it ({_line(error)})",
                               code="onnxruntime") from None
        return dict(zip(self.outputs, made))


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
