"""A run of tests that was stopped, or had failures, goes on where it was."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.resume import sources_state

_ROOT = Path(__file__).resolve().parents[1]
_CONFTEST = """
from tests.resume import Resume, earlier_seed

def pytest_configure(config):
    print("earlier", earlier_seed())
    config.pluginmanager.register(Resume(config, 7))
"""
_TESTS = """
import os, pytest

@pytest.mark.parametrize("number", range(4))
def test_(number):
    assert number != 2 or "MENDED" in os.environ

def test_skipped():
    pytest.skip("not here")

@pytest.fixture
def late():
    yield
    assert "MENDED" in os.environ

def test_teardown(late):
    pass
"""


def run(folder: Path, *options: str, **environment: str) -> str:
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir=.", "-c", os.devnull, *options],
        cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(_ROOT), "NPUGEN_BUILD": str(folder / "build"), "PYTEST_ADDOPTS": "",
             **environment})
    return found.stdout


@pytest.mark.parametrize("workers", [
    pytest.param((), id="alone"), pytest.param(("-n", "2"), id="workers", marks=pytest.mark.slow)])
def test_it_goes_on(tmp_path: Path, workers: tuple[str, ...]) -> None:
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "test_some.py").write_text(_TESTS)
    assert "1 passed" in run(tmp_path, *workers, "test_some.py::test_[3]")
    kept, = (tmp_path / "build" / "tests").iterdir()
    assert kept.name.endswith("-7.begun.jsonl")     # of some tests: more are to come
    with kept.open("a") as file:
        file.write('{"test": "test_some.py::test_[0')       # cut short
    assert "1 passed" in run(tmp_path, *workers, "test_some.py::test_[1]")
    first = run(tmp_path, *workers)
    assert "1 failed, 2 passed, 1 skipped" in first and "1 error" in first and "earlier 7" in first
    tests = [json.loads(line) for line in kept.read_text().splitlines()]
    assert {one["test"]: one["outcome"] for one in tests} == {
        **{f"test_some.py::test_[{number}]": "passed" for number in (0, 1, 3)},
        "test_some.py::test_[2]": "failed", "test_some.py::test_teardown": "failed"}
    assert all(0 <= one["seconds"] < 1 for one in tests)

    with kept.open("a") as file:
        file.write('{"test": "test_some.py::test_[2')       # cut short
    second = run(tmp_path, *workers, MENDED="1")
    assert "2 passed, 1 skipped" in second and "earlier 7" in second
    assert f"3 more tests passed in earlier runs of these sources: {kept.name}" in second
    whole, = kept.parent.iterdir()
    assert whole.name.endswith("-7.whole.jsonl")
    assert "1 failed, 4 passed" in run(tmp_path, *workers)      # anew


@pytest.mark.slow
def test_a_worker_that_dies(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "test_some.py").write_text("import os\ndef test_dies(): os._exit(3)\ndef test_lives(): pass\n")
    assert "1 failed, 1 passed" in run(tmp_path, "-n", "1")
    kept, = (tmp_path / "build" / "tests").iterdir()
    found = {one["test"]: one["outcome"] for one in map(json.loads, kept.read_text().splitlines())}
    assert found == {"test_some.py::test_dies": "failed", "test_some.py::test_lives": "passed"}


def test_of_other_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What passed before is of no use once a source is another."""
    monkeypatch.setattr("tests.resume._ROOT", tmp_path)
    (tmp_path / "gen").mkdir()
    states = []
    for text in ("a = 1", "a = 2", "a = 1"):
        (tmp_path / "gen" / "some.py").write_text(text)
        states.append(sources_state())
    assert states[0] == states[2] != states[1]
