"""onnx's own cases of operators, through generated C, under the sanitizers of gcc; and random nodes as well."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from gen.c import CFunction, generate
from gen.c.text import identifier
from tests import ROOT
from tests.gen.c.compiled import SANITIZERS, Library, compilers, difference, reference
from tests.gen.c.node_cases import cases
from tests.gen.c.random_nodes import FAMILIES

#: Cases of onnx for which C is generated, at least.
_CASES = 850


def _equal(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> bool:
    return all(difference(one, other) <= (1 if other.dtype.kind == "f" else 0)
               for one, other in zip(found, expected, strict=True))


def _by_onnxruntime(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
    try:
        return reference(model, inputs)
    except Exception:   # which takes no types but those it has kernels for
        return None


def check(folder: Path, flags: Sequence[str], compiler: str = "gcc") -> int:
    """The number of cases, all of which give what onnxruntime does, or onnx's own reference."""
    found = [case for case in cases() if case.function is not None]
    functions = [case.function for case in found if case.function is not None]
    rng = np.random.default_rng(0)
    nodes: list[tuple[CFunction, onnx.ModelProto, dict[str, np.ndarray]]] = []
    for family in FAMILIES:
        nodes += ((generate(model, f"own_{family.__name__}_{identifier(name)}"), model, inputs)
                  for name, (model, inputs) in family(rng))
    library = Library([*functions, *(function for function, *_ in nodes)], folder, flags=flags, compiler=compiler)
    wrong = []
    for function, case in zip(functions, found, strict=True):
        results = library(function.name, case.inputs)
        if not _equal(results, case.outputs):
            other = _by_onnxruntime(case.model, case.inputs)
            if other is None or not _equal(results, other):
                wrong.append(case.name)
    wrong += (function.name for function, model, inputs in nodes
              if not _equal(library(function.name, inputs), reference(model, inputs)))
    assert not wrong
    return len(found)


@pytest.mark.full
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_cases_of_onnx(compiler: str, tmp_path: Path) -> None:
    if compiler not in compilers():
        pytest.skip(f"{compiler} is not installed")
    assert check(tmp_path, ("-O2",), compiler) >= _CASES


@pytest.mark.full
def test_cases_under_sanitizers(tmp_path: Path) -> None:
    """In a process that begins with the sanitizer's library, as what is loaded into it needs."""
    library = subprocess.run(["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True,
                             text=True).stdout.strip()
    if not Path(library).is_absolute():
        pytest.skip("gcc has no AddressSanitizer here")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.gen.c.test_node_cases", str(tmp_path)], cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": f"{library}:libstdc++.so.6", "ASAN_OPTIONS": "detect_leaks=0"},
        capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    print(check(Path(sys.argv[1]), (*SANITIZERS, "-O1")))
