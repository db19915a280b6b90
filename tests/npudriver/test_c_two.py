"""Two models in C in one program: their names do not clash, and the library is there once."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from boards.registry import get_board
from cores.errors import ArgumentError
from gen.deploy.c_model import write_c_package
from gen.deploy.c_sources import library_files
from gen.run.application import open_application
from gen.run.inputs import Samples, arbitrary_samples
from gen.run.runner import run_model
from tests.c_models import TOLERANCE
from tests.c_targets import TARGETS, build, require
from tests.gen.cli.calls import error_line
from tests.gen.qdq import Builder
from tests.piped_device import run_piped

from .small import CONFIG
from .test_c_model import MODELS

#: What they are called -> which they are; both have parts for the processor, of the same names in ONNX.
_TWO = {"one": "alternating", "two": "whole"}
#: Of a package, what a program of several goes without.
_EXAMPLE = {"main.c", "Makefile", "input_0.bin", "expected_0.bin", "npugen_board.h", "doctor.c", "npugen_bringup.h",
            "npugen_bringup_data.S", "bringup.bin"}


def _package(folder: Path, name: str, model: str, seed: int) -> Path:
    make, _ = MODELS[model]
    b = Builder(np.random.default_rng(seed))
    make(b)
    path = folder / f"{model}.onnx"
    path.write_bytes(b.build().SerializeToString())
    application = open_application(path, CONFIG)
    write_c_package(folder / name, application, arbitrary_samples(application.inputs, seed=0), get_board("zu3eg"),
                    name=name)
    return path


@pytest.mark.parametrize("target", ["gcc", "gcc-sanitized"])
def test_outputs_are_those_of_python(target: str, seed: int, rng: np.random.Generator, tmp_path: Path) -> None:
    """In turn, on one device."""
    require(TARGETS[target])
    library, both, samples, expected = set(library_files(CONFIG)), tmp_path / "both", [], []
    both.mkdir()
    for name, model in _TWO.items():
        path = _package(tmp_path, name, model, seed)
        files = {file.name for file in (tmp_path / name).iterdir()} - _EXAMPLE
        assert all(file in library or file.startswith(f"npugen_{name}") for file in files)
        for file in files:
            shutil.copy(tmp_path / name / file, both)
        application = open_application(path, CONFIG)
        (spec,) = application.inputs.values()
        x = rng.uniform(-2, 2, (2, *spec.shape[1:])).astype(np.float32)
        samples.append([[one.tobytes()] for one in x])
        made = run_model(application, Samples({"x": x}, None, None), "reference").inferences
        expected.append([next(iter(one.outputs.values())).ravel() for one in made])
    sources = [f"npugen_{name}{rest}" for name in _TWO for rest in (".c", "_functions.c", "_data.S")]
    command = build(both, TARGETS[target], program="piped_two.c", library=("npugen.c", "npugen_check.c", *sources))
    found = run_piped(command, CONFIG, [one for pair in zip(*samples, strict=True) for one in pair], [4])
    assert found.status is None and len(found.outputs) == 4
    for got, wanted in zip(found.outputs, (one for pair in zip(*expected, strict=True) for one in pair), strict=True):
        values = np.frombuffer(got[0][1], np.float32)
        assert values.shape == wanted.shape and np.abs(values - wanted).max() <= TOLERANCE * np.abs(wanted).max()
    assert not np.array_equal(expected[0][0], expected[0][1])


@pytest.mark.parametrize("name, said", [
    ("Two", "must be small letters, digits and _"), ("2", "must be small letters"), ("", "must be small letters"),
    ("uio", "of a part of the library"), ("value", "of a part of the library"), ("max", "of a part of the library")])
def test_names_that_cannot_be(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=said):
        _package(tmp_path, name, "whole", 1)


def test_a_name_goes_with_c(capsys: pytest.CaptureFixture) -> None:
    line = error_line(capsys, 2, "deploy", "m.onnx", "--name", "two", "-o", "folder")
    assert "--name goes with --language c" in line
