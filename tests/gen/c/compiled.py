"""Generated C, compiled and called."""

import ctypes
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from gen.c import CFunction, render

FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Wstrict-prototypes",
         "-Wmissing-declarations", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g")
#: Bytes beside what a function may touch, and what they hold.
_FENCE, _MARK = 64, 0xA5


def compilers() -> list[str]:
    return [name for name in ("gcc", "clang") if shutil.which(name)]


def library_source(functions: Sequence[CFunction]) -> str:
    """With prototypes, without which -Wmissing-declarations stops."""
    return render(functions, prototypes=True)


class Library:
    """Functions in one shared library. Raises CalledProcessError where the compiler says anything."""

    def __init__(self, functions: Sequence[CFunction], folder: Path, *, compiler: str = "gcc",
                 flags: Sequence[str] = ("-O1",)) -> None:
        source, self.path = folder / "functions.c", folder / f"functions-{compiler}.so"
        source.write_text(library_source(functions))
        subprocess.run([compiler, *FLAGS, *flags, "-shared", "-fPIC", str(source), "-o", str(self.path), "-lm"],
                       check=True, timeout=600)
        self._functions = {function.name: function for function in functions}
        self._library = ctypes.CDLL(str(self.path))

    def __call__(self, name: str, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Results, of the sizes that they have. Fails where the function writes beyond its arena or outputs."""
        function = self._functions[name]
        arguments = [np.array(inputs[port.name], order="C") for port in function.inputs]
        for port, array in zip(function.inputs, arguments, strict=True):
            assert array.shape == port.shape and f"{array.dtype}".replace("bool", "uint8") in (
                port.c_type.removesuffix("_t"), {"float": "float32", "double": "float64"}.get(port.c_type))
        before = [array.tobytes() for array in arguments]
        parameters: list[np.ndarray] = list(arguments)
        fenced: list[tuple[np.ndarray, int]] = []

        def room(size: int) -> np.ndarray:
            raw = np.full(size + 2 * _FENCE + 64, _MARK, np.uint8)
            start = _FENCE + -(raw.ctypes.data + _FENCE) % function.alignment
            raw = raw[start - _FENCE:start + size + _FENCE]
            fenced.append((raw, size))
            return raw[_FENCE:_FENCE + size]

        results, sizes = [], []
        for port in function.outputs:
            dtype = np.dtype({"float": "float32", "double": "float64"}.get(port.c_type, port.c_type.removesuffix("_t")))
            count = int(np.prod(port.shape, dtype=np.int64))
            results.append(room(count * dtype.itemsize).view(dtype))
            parameters.append(results[-1])
            sizes.append(np.zeros(max(len(port.shape), 1), np.uintp))
            if port.sized:
                parameters.append(sizes[-1])
        arena = room(function.arena_size)
        parameters.append(arena)
        getattr(self._library, name)(*(ctypes.c_void_p(array.ctypes.data) for array in parameters))
        for raw, size in fenced:
            assert (raw[:_FENCE] == _MARK).all() and (raw[_FENCE + size:] == _MARK).all(), f"{name} writes beyond"
        assert before == [array.tobytes() for array in arguments], f"{name} writes to its inputs"
        shapes = [tuple(int(one) for one in size[:len(port.shape)]) if port.sized else port.shape
                  for port, size in zip(function.outputs, sizes, strict=True)]
        return [array[:int(np.prod(shape, dtype=np.int64))].reshape(shape)
                for array, shape in zip(results, shapes, strict=True)]


@cache
def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return options


def reference(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """onnxruntime's results, each node by itself."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), _options(), providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, dict(inputs))]


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest one, of floats in units of rtol 1e-5 and atol 1e-6 of the tensor's own scale; of integers as such.
    Infinite where shapes or what is no number differ.
    """
    if found.shape != expected.shape:
        return float("inf")
    if not expected.size:
        return 0.0
    if expected.dtype.kind != "f":
        return float(np.abs(found.astype(np.float64) - expected.astype(np.float64)).max())
    special = ~np.isfinite(expected)
    if not np.array_equal(found[special], expected[special], equal_nan=True):
        return float("inf")
    one, two = found[~special].astype(np.float64), expected[~special].astype(np.float64)
    if not one.size:
        return 0.0
    return float((np.abs(one - two) / (1e-5 * np.abs(two) + 1e-6 * max(1.0, float(np.abs(two).max())))).max())


