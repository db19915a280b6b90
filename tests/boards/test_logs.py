"""What is said of runs on hardware is what docs/logs has."""

from pathlib import Path

import pytest

from boards.registry import BOARDS
from gen.hw.logs import LOGS, standing

FOLDER = Path("docs/logs")


def test_every_log_is_there_and_of_a_board():
    assert set(LOGS) <= set(BOARDS)
    assert set(LOGS.values()) <= {path.name for path in FOLDER.glob("*.md")} - {"README.md"}


def test_what_reports_say(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gen.hw.logs.LOGS", {"zu3eg": "zu3eg-2030-01-02.md"})
    assert standing("zu3eg").startswith("Tried on hardware: docs/logs/zu3eg-2030-01-02.md")
    assert standing("kv260").startswith("Not tried on hardware")
