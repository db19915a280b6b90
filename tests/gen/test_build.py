"""`gen build --synth`: what it says of a machine and its board."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from boards.clock import Clock
from boards.registry import BOARDS
from gen.cli import main
from gen.cli.build import map_to_device
from gen.hw.clock import clock_of, remember_route
from gen.hw.remembered import remember_synthesis
from gen.hw.synth import Report
from gen.hw.timing import PathGroup, TimingReport
from sim.toolchain import child_process


@pytest.mark.slow
@pytest.mark.parametrize("board, totals, warning", [
    ("zu3eg", {"lut": 70_560, "ff": 141_120, "dsp": 360, "bram36": 216}, None),
    ("zu3eg", {"lut": 70_561, "ff": 0, "dsp": 0, "bram36": 0}, "Ultra96-V2: lut 70,561 of 70,560 (as mapped by Yosys)"),
    ("ecp5", {"lut": 1, "ff": 1, "dsp": 157, "ebr": 208.5},
     "ULX3S-85F: dsp 157 of 156, ebr 208.5 of 208 (as mapped by Yosys)"),
])
def test_a_machine_larger_than_its_board(board: str, totals: dict, warning: str | None, tmp_path: Path,
                                         capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    path = PathGroup("load", "load.a", "load.b", "D", 7, 4.0, 12, ("load.a[0]", "load.b[0]"))
    timing = TimingReport(BOARDS[board].family, "-1", 7, 4.0, {0: 10, 7: 12}, {"load": {"levels": 7}}, [path])
    report = Report(BOARDS[board].family, totals, {}, {"(top)": totals})
    monkeypatch.setattr("cores.emit.emit_verilog", lambda config: "")
    monkeypatch.setattr("gen.hw.synth.synthesize", lambda *arguments, **options: report)
    monkeypatch.setattr("gen.hw.timing.timing_of", lambda *arguments, **options: timing)
    argv = ["build", "--board", board, "--macs", "16", "-o", str(tmp_path), "--synth"]
    assert main([*argv, "--force"]) == 0
    assert ("warning: the machine is larger" in capsys.readouterr().err) == bool(warning)
    for options in ([], ["--json"]):
        assert main([*argv, *options]) == (1 if warning else 0)
        said = capsys.readouterr()
        assert ("gen build: error: " in said.err) == bool(warning)
        assert (warning or "") in said.err
    assert json.loads(said.out)["fits"] is not bool(warning)
    assert json.loads(said.out)["timing"]["estimated_mhz"] == 250
    assert json.loads((tmp_path / "resources.json").read_text())["fits"] is not bool(warning)


@pytest.mark.parametrize(("board", "macs", "said"), [
    ("ecp5", "128", "ULX3S-85F: dsp 160 of 156 (as synthesised); --macs 64 fits"),
    ("zynq7020", "1024", "(estimated); --macs "),
])
def test_a_machine_known_to_be_larger_is_refused(board: str, macs: str, said: str, tmp_path: Path,
                                                 capsys: pytest.CaptureFixture):
    assert main(["build", "--board", board, "--macs", macs, "-o", str(tmp_path / "new")]) == 1
    assert said in capsys.readouterr().err and not (tmp_path / "new").exists()


@pytest.mark.cli
def test_an_interrupt_ends_both_runs_of_yosys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The one beside, too, whose end leaving waits for."""
    begun = threading.Event()

    def synthesize(*_: object, **__: object) -> None:
        with child_process(["sleep", "1000"], tmp_path) as process:
            begun.set()
            process.wait()

    def timing_of(*_: object, **__: object) -> None:
        begun.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr("gen.hw.synth.synthesize", synthesize)
    monkeypatch.setattr("gen.hw.timing.timing_of", timing_of)
    with pytest.raises(KeyboardInterrupt):
        map_to_device("module npu; endmodule", BOARDS["ecp5"], BOARDS["ecp5"].config(16))


def test_profile_reckons_with_the_clock_that_build_has_estimated(tmp_path: Path, capsys: pytest.CaptureFixture,
                                                                 monkeypatch: pytest.MonkeyPatch):
    """Of the same machine on the same board, and with no other."""
    monkeypatch.setattr("gen.hw.remembered.cache_folder", lambda: tmp_path)
    board = BOARDS["ecp5"]
    config = board.config(16)
    assert clock_of(board, config) == Clock(85, "target")
    remember_synthesis(board, config, Report("ecp5", {}, {}), TimingReport("ecp5", "-6", 5, 11.3, {}, {}, []))
    assert str(clock_of(board, config)) == "88.5 MHz, estimated"
    assert clock_of(board, board.config(32)).basis == clock_of(BOARDS["zu3eg"], config).basis == "target"
    remember_route(board, config, 71)
    remember_synthesis(board, config, Report("ecp5", {}, {}), TimingReport("ecp5", "-6", 5, 11.1, {}, {}, []))
    assert clock_of(board, config) == Clock(71, "placed and routed")
    model = Path(__file__).parents[2] / "examples/digits/digits_int8.onnx"
    assert main(["profile", str(model), "--board", "ecp5", "--macs", "16"]) == 0
    assert "inferences a second at 71 MHz, placed and routed (ecp5)" in capsys.readouterr().out


def test_route_needs_a_board_that_nextpnr_knows(capsys: pytest.CaptureFixture):
    for argv in (["--board", "zu3eg", "--synth"], ["--board", "ecp5"]):
        assert main(["build", *argv, "--macs", "16", "--route"]) == 2
        assert "--route goes with --synth and one of the boards ecp5" in capsys.readouterr().err


def test_seeds(capsys: pytest.CaptureFixture):
    for argv, said in ((["--seeds", "2"], "--seeds goes with --route"),
                       (["--synth", "--route", "--seeds", "0"], "must be a whole number of at least 1, not 0"),
                       (["--synth", "--route", "--seeds", "two"], "of at least 1, not two")):
        assert main(["build", "--board", "ecp5", "--macs", "16", *argv]) == 2
        assert said in capsys.readouterr().err


def test_what_is_placed_was_mapped_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                        capsys: pytest.CaptureFixture):
    """The netlist that timing is estimated on is the one that nextpnr gets; the area's has its hierarchy."""
    scripts: list[str] = []
    placed: list[str] = []

    @contextmanager
    def mapped(verilog: str, script: str, progress: object) -> Iterator[Path]:
        scripts.append(script)
        register = {"type": "TRELLIS_FF", "parameters": {"CEMUX": "1"}, "port_directions": {
            "CLK": "input", "DI": "input", "Q": "output"}}
        product = {"type": "MULT18X18D", "parameters": {}, "port_directions": {
            "A0": "input", "B0": "input", "P0": "output"}, "connections": {"A0": [4], "B0": [4], "P0": [5]}}
        (tmp_path / "netlist.json").write_text(json.dumps({"modules": {"npu": {"ports": {
            "out": {"direction": "output", "bits": [6]}}, "netnames": {}, "cells": {
                "before": {**register, "connections": {"CLK": [2], "DI": [3], "Q": [4]}}, "product": product,
                "behind": {**register, "connections": {"CLK": [2], "DI": [5], "Q": [6]}}}}}}))
        yield tmp_path

    def nextpnr(command: list[str], folder: Path, progress: object) -> dict:
        placed.append((folder / command[command.index("--json") + 1]).read_text())
        mhz = 88.25 + 10 * (command[-4:-2] == ["--seed", "2"])
        return {"fmax": {"clk": {"achieved": mhz, "constraint": 85}}, "critical_paths": [], "utilization": {}}

    totals = dict.fromkeys(BOARDS["ecp5"].resources, 1)
    monkeypatch.setattr("cores.emit.emit_verilog", lambda config: "module npu; endmodule")
    monkeypatch.setattr("gen.cli.build.cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr("gen.hw.flat.mapped", mapped)
    monkeypatch.setattr("gen.hw.route._run_nextpnr", nextpnr)
    monkeypatch.setattr("gen.hw.route.find_nextpnr", lambda tool: [tool])
    monkeypatch.setattr("gen.hw.synth.synthesize", lambda *arguments, **options: Report("ecp5", totals, {}, {}))
    options = ["--board", "ecp5", "--macs", "16", "-o", str(tmp_path / "out"), "--synth", "--route"]
    assert main(["build", *options]) == 0
    assert len(scripts) == len(placed) == 1
    assert list(json.loads(placed[0])["modules"]["npu"]["cells"]) == ["product"], "registers are inside"
    # As the Makefile of the project has it.
    lines = (tmp_path / "out" / "npu.ys").read_text().splitlines()
    assert [line.replace("npu.v", "design.v").replace("npu.mapped.json", "netlist.json") for line in lines[1:]] == [
        line for line in scripts[0].splitlines() if line]
    assert json.loads((tmp_path / "out" / "resources.json").read_text())["route"]["mhz"] == 88.2
    assert main(["build", *options]) == 0 and len(scripts) == len(placed) == 1, "both are kept"
    capsys.readouterr()
    assert main(["build", *options, "--seeds", "3"]) == 0 and len(scripts) == 2 and len(placed) == 3
    assert "the fastest of 3 seeds; MHz by seed: default 88.2, 2 98.2, 3 88.2" in capsys.readouterr().out
    route = json.loads((tmp_path / "out" / "resources.json").read_text())["route"]
    assert (route["mhz"], route["seeds"]) == (98.2, {"default": 88.2, "2": 98.2, "3": 88.2})


@pytest.mark.rtl
def test_a_clock_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture):
    """In the project, in the overlay that sets it on the board, and in the manifest."""
    options = ["build", "--board", "zu3eg", "--macs", "16", "-o", str(tmp_path)]
    assert main([*options, "--clock", "187.5"]) == 0
    assert "FREQMHZ {187.5}" in (tmp_path / "vivado_project.tcl").read_text()
    assert "rates = <187500000>" in (tmp_path / "npu.dtso").read_text()
    assert json.loads((tmp_path / "manifest.json").read_text())["clock_target_mhz"] == 187.5
    capsys.readouterr()
    assert main([*options, "--clock", "9000"]) == 2
    assert "must be in 1..400 MHz, not 9000" in capsys.readouterr().err
