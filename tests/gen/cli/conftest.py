"""Tests of the command line work in a folder of their own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Commands must not depend on where they are called."""
    monkeypatch.chdir(tmp_path)
