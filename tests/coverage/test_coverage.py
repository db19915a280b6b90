"""The command `python -m tests.coverage`, its limits, and what is recorded."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from gen.files.results import read_entry, write_entry
from tests.coverage.__main__ import main
from tests.coverage.architectures import ARCHITECTURES
from tests.coverage.figures import Figures, Recorded
from tests.coverage.page import PAGE, page, table
from tests.coverage.runner import run_all
from tests.gen.architecture_parts import PARTS

GOOD = Figures(macs=2_000_000, host_nodes=3, switches=2, compared=100)


@pytest.fixture
def folder(rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One model, called part; a folder of its own for what is kept."""
    monkeypatch.setenv("NPUGEN_BUILD", str(tmp_path / "build"))
    onnx.save(PARTS["excited"](rng)[0], tmp_path / "part.onnx")
    return tmp_path


def recorded(monkeypatch: pytest.MonkeyPatch, path: Path, **models: Figures) -> None:
    monkeypatch.setattr("tests.coverage.figures.RECORDED", path)
    Recorded(command="c", versions={"torch": "2"}, models=models).save()


def test_the_page_has_what_is_recorded() -> None:
    assert PAGE.read_text() == page(), "docs/coverage.md is not up to date: run `python -m tests.coverage page`"


@pytest.mark.parametrize(("now", "before", "wrong"), [
    (GOOD, GOOD, ""),
    (GOOD, None, ""),
    (Figures(macs=2_000_001, host_nodes=9), GOOD, ""),
    (Figures(macs=1_899_999), GOOD, "1.9 million multiplications on the accelerator, 2.0 recorded"),
    (Figures(macs=9_000_000, compared=100, different=1), GOOD, "1 of 100 values differ from the reference"),
    (Figures(refused="why"), GOOD, "refused: why"),
    (Figures(refused="why"), Figures(refused="other"), ""),
])
def test_what_is_worse(now: Figures, before: Figures | None, wrong: str) -> None:
    assert now.worse_than(before) == wrong


@pytest.mark.slow
def test_a_run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """All that is known of the model, status 1 where it is worse than recorded; kept for the next time."""
    recorded(monkeypatch, folder / "recorded.json")
    assert main(["run", str(folder), "--json"]) == 0
    found = Figures(**json.loads(capsys.readouterr().out)["part"])
    assert not found.refused and found.macs and found.compared and not found.different
    # What was kept is taken, and another model is not taken for this one.
    (kept,) = (folder / "build" / "coverage").iterdir()
    write_entry(kept, json.dumps({**json.loads(read_entry(kept)), "switches": 77}))
    recorded(monkeypatch, folder / "recorded.json", part=Figures(macs=found.macs + 1))
    assert main(["run", str(folder), "part"]) == 1
    out, err = capsys.readouterr()
    assert "| part |  |" in out and "| 77 | 0 |  |" in out and "part: worse: " in err
    assert main(["run", str(folder), "other"]) == 1
    assert "other.onnx: no model is there; `python -m tests.coverage export" in capsys.readouterr().err


def test_a_model_that_takes_too_long(folder: Path) -> None:
    """It is a row like others."""
    ((model, figures),) = run_all([folder / "part.onnx"], seconds=0)
    assert model.stem == "part" and figures == Figures(refused="takes more than 0 s")


def test_the_table() -> None:
    lines = table({"tcn": GOOD, "b": Figures(refused="a | b")}).splitlines()
    assert lines[2] == "| b |  | refused: a \\| b |  |  |  |  |"
    assert lines[3] == f"| tcn | {ARCHITECTURES['tcn'].origin}, 40x98 | 2.0 | 3 | 2 | 0 |  |"
