"""What `--version` says: that of the distribution, and of the instruction set."""

import tomllib
from importlib import metadata

import pytest

from cores.arch.registers import VERSION
from gen.cli import main
from tests import ROOT


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"npugen {metadata.version('npugen')}, instruction set {VERSION}\n"


def test_the_version_has_its_changes() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text()
