"""`gen build --synth`: what it says of a machine and its board."""

import json
from pathlib import Path

import pytest

from boards.registry import BOARDS
from gen.cli import main
from gen.hw.synth import Report


@pytest.mark.parametrize("board, totals, warning", [
    ("zu3eg", {"lut": 70_560, "ff": 141_120, "dsp": 360, "bram36": 216}, None),
    ("zu3eg", {"lut": 70_561, "ff": 0, "dsp": 0, "bram36": 0}, "Ultra96-V2: lut 70,561 of 70,560; take fewer"),
    ("ecp5", {"lut": 1, "ff": 1, "dsp": 157, "ebr": 208.5}, "ULX3S-85F: dsp 157 of 156, ebr 208.5 of 208; take fewer"),
])
def test_a_machine_larger_than_its_board(board: str, totals: dict, warning: str | None, tmp_path: Path,
                                         capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    report = Report(BOARDS[board].family, totals, {}, {"(top)": totals})
    monkeypatch.setattr("cores.emit.emit_verilog", lambda config: "")
    monkeypatch.setattr("gen.hw.synth.synthesize", lambda *arguments, **options: report)
    for options in ([], ["--json"]):
        assert main(["build", "--board", board, "--macs", "16", "-o", str(tmp_path), "--synth", *options]) == 0
        said = capsys.readouterr()
        assert ("warning: " in said.err) == bool(warning)
        assert (warning or "") in said.err
    assert json.loads(said.out)["fits"] is not bool(warning)
    assert json.loads((tmp_path / "resources.json").read_text())["fits"] is not bool(warning)
