"""`gen profile --on A --on B`: each side is its own profile."""

import json
from pathlib import Path

import pytest

from gen.cli import main


def profiled(model: str, capsys: pytest.CaptureFixture, *options: str) -> dict:
    assert main(["profile", model, "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_each_side_is_a_profile(model: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    sides = profiled(model, capsys, "--on", "macs=64", "--on", "macs=256,features=gather+fusion,board=zcu102",
                     "-o", "out")
    assert json.loads((tmp_path / "out" / "profile.json").read_text()) == sides
    assert (tmp_path / "out" / "profile.png").read_bytes().startswith(b"\x89PNG")
    options = (["--macs", "64"], ["--macs", "256", "--features", "gather,fusion", "--board", "zcu102"])
    for number, (machine, words) in enumerate(zip(sides["machines"], options, strict=True)):
        assert machine["machine"] == "AB"[number] and ("zcu102" in machine["what"]) == bool(number)
        for what, total, density in (("cycles", "cycles", []), ("pruned", "pruned_cycles", ["--density", "0.25"])):
            alone = profiled(model, capsys, *words, *density)
            assert machine[total] == alone["total"]["cycles"]
            assert {row["name"]: row[what][number] for row in sides["layers"] if row[what][number] is not None} == {
                layer["name"]: layer["cycles"] for layer in alone["layers"]}
    assert sides["machines"][0]["pruned_cycles"] < sides["machines"][0]["cycles"]


@pytest.mark.slow
def test_the_table(model: str, capsys: pytest.CaptureFixture):
    assert main(["profile", model, "--on", "macs=64", "--on", "macs=128"]) == 0
    text = capsys.readouterr().out
    assert "A: zu3eg, 64 MACs" in text and "B: zu3eg, 128 MACs" in text and "A over" in text
    row = next(line for line in text.splitlines() if line.startswith(" block1")).split()
    assert row[0] == "block1" and len(row) == 6
    first, second = (int(cell.replace(",", "")) for cell in row[1:3])
    assert "takes less with 25 % of each block's weights" in text
    assert row[3] == f"{first / second:.2f}" and 0 < float(row[4]) < 100


@pytest.mark.slow
def test_shares_that_a_machine_has(model: str, capsys: pytest.CaptureFixture):
    """One of 16 MACs has them all, one whose lanes select among two channels no less than half."""
    assert main(["profile", model, "--on", "macs=16", "--on", "macs=64,for=dense"]) == 0
    said = capsys.readouterr()
    assert "takes less with 25 % (A), 50 % (B) of each block's weights" in said.out and "--density" not in said.err


@pytest.mark.slow
def test_units_are_chosen_once(model: str, capsys: pytest.CaptureFixture):
    """For the model as it is: the pruned one is on the same machine."""
    sides = profiled(model, capsys, "--on", "board=zu3eg", "--on", "macs=16")["machines"]
    features = sides[0]["what"].partition("features ")[2].replace(", ", ",")
    alone = profiled(model, capsys, "--features", features, "--density", "0.25")
    assert "gather" in features and sides[0]["pruned_cycles"] == alone["total"]["cycles"]


@pytest.mark.parametrize("options, status, words", [
    (["--on", "macs=64"], 2, "two to 8 machines are compared, not 1"),
    (["--on", "macs=64", "--on", "macs"], 2, "must be options of a machine such as macs=256"),
    (["--on", "macs=64", "--on", "speed=3"], 2, "unrecognized arguments: --speed 3"),
    (["--on", "macs=64", "--on", "macs=x"], 2, "argument --macs: invalid int value: 'x'"),
    (["--on", "macs=64", "--on", "macs=128", "--macs", "64"], 2, "--on says what the machines are"),
    (["--on", "macs=64", "--on", "macs=128", "--board", "zu3eg"], 2, "--on says what the machines are"),
    (["--on", "macs=64", "--on", "macs=128", "--density", "0.5"], 2, "--density does not go with --on")])
def test_refusals(options: list[str], status: int, words: str, capsys: pytest.CaptureFixture):
    try:
        assert main(["profile", "model.onnx", *options]) == status
    except SystemExit as end:
        assert end.code == status
    captured = capsys.readouterr()
    assert words in captured.err and not captured.out
