"""Tests of the command line work in a folder of their own."""

from pathlib import Path

import pytest


@pytest.fixture
def model(digits: Path) -> str:
    return str(digits / "digits_int8.onnx")


@pytest.fixture
def samples(digits: Path) -> str:
    return str(digits / "digits_test.npz")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Commands must not depend on where they are called."""
    monkeypatch.chdir(tmp_path)
