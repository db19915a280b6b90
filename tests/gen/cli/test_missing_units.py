"""Optional units that a machine lacks for a model: said first, with what they would change and cost."""

import json
from dataclasses import replace

import pytest

from boards.registry import BOARDS, get_board
from gen.cli import main
from gen.hw.area import area_of, growth, machines
from tests.gen.cli.calls import error_line
from tests.gen.cli.gated import gated


def test_it_is_said_first(capsys: pytest.CaptureFixture):
    gated("Sigmoid", "Sigmoid", "Sigmoid")
    assert main(["compile", "m.onnx", "--macs", "16", "-o", "y.npu"]) == 0
    said = capsys.readouterr().err.splitlines()[1:]
    assert said[0] == ("the machine lacks what this model has use for (table): the processor is left with 7 nodes in 4 "
                       "segments")
    assert said[1].startswith("  with table: 1 node in 1 segment; costs about lut ")
    assert said[1].endswith(" of zu3eg; --features table") and "bram36" in said[1]
    assert said[2].startswith("on the processor")
    assert main(["compile", "m.onnx", "--macs", "16", "--features", "table", "-o", "y.npu"]) == 0
    said = capsys.readouterr().err
    assert "has use for" not in said
    assert "subgraphs on the accelerator: 1, switches: 1" in said    # as was promised


@pytest.mark.parametrize("line", ["run m.onnx --input x.npz", "profile m.onnx", "deploy m.onnx -o package"])
def test_other_commands_say_it_too(line: str, capsys: pytest.CaptureFixture):
    gated("Sigmoid")
    assert main([*line.split(), "--macs", "16", "--board", "ecp5"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("the machine lacks what this model has use for (table)")
    assert said[1].endswith(" of ecp5; --features table")
    assert main(["compile", "m.onnx", "--macs", "16", "-o", "y.npu"]) == 0
    assert main(["run", "y.npu", "--input", "x.npz"]) == 0      # a program is what it is
    assert capsys.readouterr().err.count("has use for") == 1


@pytest.mark.slow
def test_units_that_help_each_other(capsys: pytest.CaptureFixture):
    """What each gives by itself, and what both do; features that are there stay in what is to be given."""
    gated("Sigmoid", "Mul")
    argv = ["compile", "m.onnx", "--macs", "16", "-o", "y.npu", "--json"]
    assert main([*argv, "--features", "winograd"]) == 0
    facts = json.loads(capsys.readouterr().out)
    left = {tuple(one["features"]): one["host_nodes"] for one in facts["missing"]}
    assert left[("table", "product")] < min(left[("table",)], left[("product",)])
    assert max(left.values()) < facts["partition"]["host_nodes"]
    assert [one["option"] for one in facts["missing"]] == [
        "--features winograd,table", "--features winograd,product", "--features winograd,table,product"]
    for one in facts["missing"]:
        assert one["refused"] is None and min(one["cost"].values()) > 0
        assert main([*argv, *one["option"].split()]) == 0
        assert json.loads(capsys.readouterr().out)["partition"]["host_nodes"] == one["host_nodes"]


def test_only_where_it_makes_a_difference(capsys: pytest.CaptureFixture):
    gated()
    assert main(["compile", "m.onnx", "--macs", "16", "-o", "y.npu", "--json"]) == 0
    captured = capsys.readouterr()
    facts = json.loads(captured.out)
    assert facts["partition"]["host_nodes"] == 1 and facts["missing"] == [] and "has use for" not in captured.err


def test_a_board_without_room_for_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """One that is full: the unit is named, and that it does not fit."""
    board = get_board("zu3eg")
    used = area_of(board.config(16), board.family).totals
    full = replace(board, name="full", resources={name: round(count) for name, count in used.items()})
    monkeypatch.setitem(BOARDS, "full", full)
    gated("Sigmoid")
    assert main(["compile", "m.onnx", "--macs", "16", "--board", "full", "-o", "y.npu"]) == 0
    assert "this machine cannot have it: full is too small: bram36" in capsys.readouterr().err


def test_a_difference_of_areas_has_no_error_in_it():
    """The model's error is in neither, where the table has one of the two machines."""
    for one in machines():
        if not one.config.table and not one.config.product and not one.config.depthwise:
            with_table = type(one.config).from_dict({**one.config.to_dict(), "table": 1})
            more = growth(one.config, with_table, one.family)
            assert all(0 <= count < 0.2 * one.totals[name] for name, count in more.items()), more


def test_refusals_stay(capsys: pytest.CaptureFixture):
    gated("Sigmoid")
    assert "Sigmoid" in error_line(capsys, 1, "compile", "m.onnx", "--macs", "16", "--host", "off", "-o", "y.npu")
