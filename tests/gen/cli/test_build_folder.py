"""``gen build``: what is in its folder, and what stays there of an earlier one."""

import json
import re
from pathlib import Path

import pytest

from boards.registry import get_board
from gen.cli import main
from gen.cli.build import default_folder
from gen.families.registry import get_family
from gen.hw.export import DESCRIPTIONS
from npudriver.bringup import BRINGUP
from tests.gen.cli.calls import error_line
from tests.hollow import hollow_npu


@pytest.mark.rtl
def test_build_writes_everything(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["build", "--board", "zynq7020", "--macs", "16", "--acc-depth", "128", "-o", "out", "--json"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["config"]["acc_depth"] == 128 and result["config"]["multiplier_width"] == 25
    names = {"npu.v", "config.json", "register_map.md", "npugen_regs.h", BRINGUP, *DESCRIPTIONS, "manifest.json",
             *get_family("xc7").project}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert {Path(path).name for path in result["files"]} == names
    assert "module npu(" in (tmp_path / "out" / "npu.v").read_text()
    # The configuration that was written is the configuration that is read.
    assert main(["build", "--config", "out/config.json", "--board", "zynq7020", "-o", "again"]) == 0
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_every_machine_has_a_folder_of_its_own():
    board = get_board("zu3eg")
    plain = board.config(64)
    names = [default_folder(board, config).name for config in (
        plain, board.config(64, **plain.feature_fields(["gather", "depthwise"])),
        board.config(64, **plain.feature_fields(["fusion"])), board.config(64, acc_depth=128))]
    assert names[:3] == ["zu3eg-64", "zu3eg-64-depthwise-gather", "zu3eg-64-fusion"]
    assert re.fullmatch("zu3eg-64-[0-9a-f]{8}", names[3])


@pytest.mark.rtl
def test_nothing_of_an_earlier_build_stays(tmp_path: Path, capsys: pytest.CaptureFixture,
                                           monkeypatch: pytest.MonkeyPatch):
    """Resources and projects of another machine go; files of other origin stay."""
    monkeypatch.setattr("cores.emit.emit_verilog", hollow_npu)
    folder = tmp_path / "out"
    assert main(["build", "--board", "zynq7020", "--macs", "16", "-o", "out"]) == 0
    (folder / "resources.json").write_text('{"family": "xc7", "lut": 1, "cells": {}, "components": {}}')
    (folder / "notes.txt").touch()
    assert main(["build", "--board", "ecp5", "--macs", "16", "-o", "out"]) == 0
    common = {"npu.v", "config.json", "register_map.md", "npugen_regs.h", BRINGUP, *DESCRIPTIONS, "manifest.json",
              "notes.txt"}
    assert {path.name for path in folder.iterdir()} == {*common, *get_family("ecp5").project}
    (folder / "Makefile").write_text("all:\n")
    capsys.readouterr()
    line = error_line(capsys, 1, "build", "--board", "ecp5", "--macs", "16", "-o", "out")
    assert "out/Makefile: there is a file that `build` has not made" in line
    assert (folder / "Makefile").read_text() == "all:\n"
