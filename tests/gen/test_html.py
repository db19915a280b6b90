"""--html of commands: what is on the page, and the page in a browser."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from boards.registry import BOARDS
from gen.check.compare import Comparison as Found
from gen.check.compare import LayerDifference, OutputDifference
from gen.cli import main
from gen.hw.synth import Report
from gen.hw.timing import PathGroup, TimingReport
from gen.report.comparison import comparison_sheet
from tests.gen.browser import require_usable
from tests.gen.cli.calls import error_line

_COMMANDS = ("compile", "profile", "compare", "explore", "build")


@pytest.fixture(autouse=True)
def _no_hardware(elsewhere: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cores.emit.emit_verilog", lambda config: "")


def argv(command: str, digits: Path) -> list[str]:
    """A quick call, that of ``compare`` of two samples; of ``explore`` one machine is too large."""
    model, samples = str(digits / "digits_int8.onnx"), str(digits / "digits_test.npz")
    return {
        "compile": ["compile", model, "--macs", "16", "-o", "p.npu"],
        "profile": ["profile", model, "--macs", "16", "--memory", "ecp5"],
        "compare": ["compare", model, "--input", samples, "--limit", "2"],
        "explore": ["explore", model, "--vary", "macs=64,1024", "--vary", "features=none,gather", "--board", "zynq7020",
                    "--jobs", "1", "--no-cache"],
        "build": ["build", "--macs", "16", "-o", "built"],
    }[command]


def data(path: str) -> dict[str, Any]:
    """What a page draws."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', Path(path).read_text(), re.DOTALL)
    (found,) = json.loads(text)
    return found


def table(sheet: dict[str, Any], label: str) -> list[dict[str, Any]]:
    """Rows by the names of the columns."""
    (found,) = (block for part in sheet["sections"] for block in part["blocks"]
                if block["kind"] == "table" and block["label"] == label)
    return [dict(zip((column["name"] for column in found["columns"]), row, strict=True)) for row in found["rows"]]


@pytest.mark.slow
def test_compile_and_profile(digits: Path, capsys: pytest.CaptureFixture):
    assert main([*argv("compile", digits), "--html", "c.html"]) == 0
    assert "c.html: open it in a browser" in capsys.readouterr().err
    assert main([*argv("profile", digits), "--html", "p.html", "--json"]) == 0
    profile = json.loads(capsys.readouterr().out)
    page = data("p.html")
    assert page["total"] == profile["total"] and page["memory"] == "ecp5"
    ideal = data("c.html")
    assert ideal["memory"] == "" and ideal["total"]["cycles"] < page["total"]["cycles"]


def test_compare(digits: Path, capsys: pytest.CaptureFixture):
    assert main([*argv("compare", digits), "--html", "p.html", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = table(data("p.html"), "Table of layers")
    for row, layer in zip(rows, found["layers"], strict=True):
        assert [row[name] for name in ("layer", "values", "differing", "largest", "allowed", "beyond")] == [
            layer[name] for name in ("layer", "values", "differing", "largest", "allowed", "beyond")]
        assert (row["SQNR dB"] is None) == (layer["differing"] == 0) == (layer["sqnr_db"] is None)
        if layer["sqnr_db"] is not None:
            assert row["SQNR dB"] == pytest.approx(layer["sqnr_db"], abs=0.006) and row["SQNR dB"] > 40
    (output,) = table(data("p.html"), "Outputs")
    assert output["values"] == 20 and output["equal"] + output["by one step"] + output["by more"] == 20


def test_of_a_wrong_layer():
    """It is said first, stands out in the table, and has its colour."""
    layers = [LayerDifference("a", "conv", "a", 100, 1, 1, 1, 0, 60.0),
              LayerDifference("b", "conv", "b", 100, 30, 9, 1, 20, 12.0)]
    sheet = comparison_sheet("m", Found(1, layers, [OutputDifference("y", "b", {0: 70, 9: 30}, 12.0, 0.5, 0)]))
    assert sheet.findings[0].startswith("b (conv) is computed wrongly: 20 of 100 values")
    assert sheet.cards[0] == ("1", "layers are computed wrongly")
    bars, _, rows, *_ = (block for part in sheet.sections for block in part.blocks)
    assert {part.role: list(part.values) for part in bars.parts} == {"light": [1, 10], "wrong": [0, 20]}    # type: ignore
    assert rows.marked == [1]   # type: ignore


def test_explore(digits: Path, capsys: pytest.CaptureFixture):
    assert main([*argv("explore", digits), "--html", "p.html", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    page = data("p.html")
    (plane,) = (block for part in page["sections"] for block in part["blocks"] if block["kind"] == "points")
    feasible = [one for one in found["points"] if one["feasible"]]
    assert 0 < len(feasible) < len(found["points"])
    assert [one["figures"] for one in plane["points"]] == [one["figures"] for one in feasible]
    assert [one["front"] for one in plane["points"]] == [one["front"] for one in feasible]
    assert (plane["x"], plane["y"], plane["colour"]) == ("cycles", "area", "features")
    verdicts = [row["verdict"] for row in table(page, "Points of the search")]
    assert [verdict == "front" for verdict in verdicts] == [one["front"] for one in found["points"]]
    assert any(verdict.startswith("does not fit") for verdict in verdicts)
    assert "333" not in page["note"] and "zynq7020" in page["note"] and "target" in page["note"]


def test_build(capsys: pytest.CaptureFixture, digits: Path, monkeypatch: pytest.MonkeyPatch):
    assert main([*argv("build", digits), "--html", "p.html", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    page = data("p.html")
    assert page["cards"][0][0] == "yes" and page["cards"][2] == ["333 MHz", "clock, target"]
    rows = {row.pop("component"): row for row in table(page, "Components")}
    components = {name: counts for name, counts in found["estimate"]["components"].items() if any(counts.values())}
    assert rows == {name: {**rows[name], **counts} for name, counts in components.items()}
    totals = {"lut": 80_000, "ff": 1, "dsp": 1, "bram36": 1}
    path = PathGroup("load", "load.a", "load.b", "D", 7, 4.0, 12, ("load.a[0]", "load.b[0]"))
    family = BOARDS["zu3eg"].family
    monkeypatch.setattr("gen.hw.synth.synthesize", lambda *_, **__: Report(family, totals, {}, {"load": totals}))
    monkeypatch.setattr("gen.hw.timing.timing_of", lambda *_, **__: TimingReport(
        family, "-1", 7, 4.0, {0: 10, 7: 12}, {"load": {"levels": 7, "delay_ns": 4.0}}, [path]))
    assert main([*argv("build", digits), "--synth", "--html", "p.html", "--json"]) == 1     # too large, and yet a page
    page = data("p.html")
    assert page["cards"][0] == ["no", f"it fits {BOARDS['zu3eg'].part}, as mapped by Yosys"]
    assert page["cards"][2] == ["250 MHz", "clock, estimated"] and "lut 80,000 of 70,560" in page["findings"][0]
    assert table(page, "Longest paths")[0]["ns"] == 4.0


def test_a_page_in_the_place_of_a_program(digits: Path, capsys: pytest.CaptureFixture):
    line = error_line(capsys, 2, *argv("compile", digits), "--html", "./p.npu")
    assert "--html p.npu is what -o writes, too" in line
    assert not Path("p.npu").exists()


@pytest.mark.parametrize("command", _COMMANDS)
def test_refusals(command: str, digits: Path, capsys: pytest.CaptureFixture):
    """Before anything is done."""
    Path("folder").mkdir()
    assert "folder" in error_line(capsys, 1, *argv(command, digits), "--html", "folder")
    if command != "build":
        model = str(digits / "digits_int8.onnx")
        assert "--html" in error_line(capsys, 2, *argv(command, digits), "--html", model)


@pytest.mark.full
@pytest.mark.parametrize("command", _COMMANDS)
def test_in_a_browser(command: str, digits: Path, tmp_path: Path):
    assert main([*argv(command, digits), "--html", "page.html"]) == 0
    require_usable(tmp_path / "page.html", tmp_path)
    require_usable(tmp_path / "page.html", tmp_path, size=(500, 900), theme="dark")
