"""The examples of docs/extending.md: each is applied to a copy of the tree, and does there what it is for."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.selection import with_full

EXAMPLES = ROOT / "docs" / "examples"
#: Example -> the module that tries it in the copy, and the most source files that it may touch.
CASES = {"ternary_unit": ("tests.extending.ternary_check", 10),
         "absolute_operation": ("tests.extending.absolute_check", 6)}


_NUMBERS = {6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}


def _touched(patch: str) -> list[str]:
    return re.findall(r"^\+\+\+ b/(\S+)$", patch, re.MULTILINE)


def _copy(folder: Path) -> None:
    """The packages and the tests, without what was built."""
    for package in ("boards", "cores", "gen", "npudriver", "sim", "tests"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "build"))


def test_every_example_is_tried() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.patch")} == set(CASES)


def _applied(name: str, folder: Path) -> None:
    _copy(folder)
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    subprocess.run(["git", "apply", str(EXAMPLES / f"{name}.patch")], cwd=folder, env=environment, check=True)


@pytest.mark.parametrize("name", CASES)
def test_the_text_of_an_example(name: str, tmp_path: Path) -> None:
    """What docs/extending.md says of it; and it applies."""
    _, most = CASES[name]
    patch = EXAMPLES / f"{name}.patch"
    touched = _touched(patch.read_text())
    assert 0 < len(touched) <= most, touched
    page = (ROOT / "docs" / "extending.md").read_text()
    lines = sum(line.startswith("+") and not line.startswith("+++") for line in patch.read_text().splitlines())
    said = re.search(rf"\[{patch.name}\]\(\S+\), \*\*(\w+) files\*\*, (\d+) lines", page)
    assert said is not None and said[1] == _NUMBERS[len(touched)] and int(said[2]) == lines, (len(touched), lines)
    assert all(file in page for file in touched), "docs/extending.md names the files that the example touches"
    _applied(name, tmp_path)


@pytest.mark.parametrize("name", with_full(CASES, "absolute_operation"))
def test_example(name: str, tmp_path: Path) -> None:
    check, _ = CASES[name]
    _applied(name, tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NPUGEN_BUILD": str(tmp_path / "build")}
    ran = subprocess.run([sys.executable, "-m", check], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    print(ran.stdout)
