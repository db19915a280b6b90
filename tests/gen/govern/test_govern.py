"""`gen govern` as it is called: levels, a whole discharge, files, refusals; and the driver's own command on them."""

import csv
import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import npudriver.__main__ as commands
from cores.config import NpuConfig
from gen.cli import main
from gen.cli.common import console
from gen.energy.unit_energy import UnitEnergy
from gen.ir import reference
from gen.options import CompileOptions
from gen.program.file import save_program
from gen.run.workload import Workload, open_workload
from npudriver.levels import LevelTable
from sim.devices import FunctionalBackend
from sim.stochastic.streams import Streams
from tests.gen.qdq import Builder
from tests.npudriver import small
from tests.npudriver.compiled_c import compiled
from tests.npudriver.small_streams import CONFIG

ENERGIES = ["--energies", "400,200,100", "--unit", "uJ"]


def scores_of(rng: np.random.Generator, streams: int | None, config: NpuConfig = CONFIG) -> Workload:
    """int8 (8, 4, 4) -> ten int8 scores: a convolution, and one over all of its pixels, by streams if there are any."""
    b = Builder(rng)
    real = b.dequantize(b.input(1, 8, 4, 4), zero_point=0)
    real = b.requantize(b.node("Conv", real, b.weights(8, 8, 3, 3), pads=[1, 1, 1, 1]), zero_point=0)
    b.output(b.quantize(b.node("Conv", real, b.weights(10, 8, 4, 4)), zero_point=0))
    content = b.build().SerializeToString()
    path = Path("scores.onnx")
    if streams is None:
        return open_workload(path, config, content=content)
    *_, last = open_workload(path, config, content=content).graph.layers
    return open_workload(path, config, CompileOptions(stochastic={last.name: Streams(streams)}), content=content)


@pytest.fixture
def folder(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A program with streams of 64 bits; samples with the labels that int8 gives them."""
    seed = int(rng.integers(1 << 30))
    work = scores_of(np.random.default_rng(seed), 64)
    save_program(work.program, tmp_path / "streams.npu")
    x = rng.integers(-128, 128, (6, 8, 4, 4), dtype=np.int8)
    exact = scores_of(np.random.default_rng(seed), None)
    save_program(exact.program, tmp_path / "exact.npu")
    labels = [int(next(iter(reference.run(exact.graph, {"x": one[None]})[0].values())).argmax()) for one in x]
    np.savez(tmp_path / "x.npz", x=x, label=labels)
    return tmp_path


def call(folder: Path, *options: str, programs: tuple[str, ...] = ("streams.npu",), shifts: str = "0,1,3") -> int:
    return main(["govern", *(str(folder / name) for name in programs), "--input", str(folder / "x.npz"),
                 *(["--shifts", shifts] if shifts else []), "-o", str(folder / "out"), *options])


def rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "out" / "discharge.csv").read_text().splitlines()))


@pytest.mark.slow
def test_a_whole_discharge(folder: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(console, "_width", 160)
    assert call(folder, *ENERGIES, "--battery", "30", "--plots", "png,svg") == 0
    text = capsys.readouterr().out
    assert "70 inferences, 2.33 times the 30 of the first level alone" in text
    assert "made on functional, every value compared with the reference" in text
    assert {path.name for path in (folder / "out").iterdir()} == {
        "governor.json", "npugen_levels.h", "discharge.csv", "discharge.png", "discharge.svg"}
    found = rows(folder)
    # A third of 30 times 400 at each level.
    assert Counter(row["level"] for row in found) == {
        "streams-shift0": 10, "streams-shift1": 20, "streams-shift3": 40}
    left = 12_000
    for row in found:
        assert int(row["charge_ppm"]) == left * 1_000_000 // 12_000
        left -= int(row["energy"])
    assert 0 <= left < 100
    cycles = {row["level"]: int(row["cycles"]) for row in found}
    assert len(set(cycles.values())) == 3 and list(cycles.values()) == sorted(cycles.values(), reverse=True)
    assert all(row["differing"] == "0" and row["in_time"] == "1" for row in found)
    table = LevelTable.load(folder / "out" / "governor.json")
    assert table.programs == ("../streams.npu",) and table.battery == 12_000 and table.unit == "uJ"


@pytest.mark.rtl
def test_on_the_verilog(folder: Path, capsys: pytest.CaptureFixture):
    """The same levels and results as on the functional simulator, cycles within a twentieth of the time model's."""
    traces = []
    for device in ("functional", "rtl"):
        assert call(folder, *ENERGIES, "--battery", "6", "--deadline", "1", "--on", device, "--json") == 0
        values = json.loads(capsys.readouterr().out)
        assert (values["device"], values["differing"], values["missed"]) == (device, 0, 0)
        traces.append(rows(folder))
    assert len(traces[0]) == len(traces[1]) > 10
    for one, other in zip(*traces, strict=True):
        assert int(other["cycles"]) == pytest.approx(int(one["cycles"]), rel=0.05)
        for name in ("charge_ppm", "level", "right", "differing"):
            assert one[name] == other[name]


def test_what_the_device_gets_wrong_is_seen(folder: Path, capsys: pytest.CaptureFixture,
                                            monkeypatch: pytest.MonkeyPatch):
    """A driver that leaves the register as it is: results are not those of the level."""
    monkeypatch.setattr("npudriver.device.Device.stream_shift", property(lambda self: 0, lambda self, value: None),
                        raising=False)
    assert call(folder, *ENERGIES, "--battery", "4", "--json") == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["differing"] > 0 and "values differ from the reference" in captured.err


@pytest.mark.slow
def test_lasting(folder: Path, capsys: pytest.CaptureFixture):
    """Half of what the first level would take is there: an inference a millisecond all the same, up to the end."""
    assert call(folder, *ENERGIES, "--battery", "50", "--lasts", "0.1", "--period", "1", "--json") == 0
    values = json.loads(capsys.readouterr().out)
    found = rows(folder)
    assert values["inferences"] == len(found) == 100
    assert [float(row["seconds"]) for row in found] == pytest.approx([number / 1000 for number in range(100)])
    assert sum(int(row["energy"]) for row in found) <= 50 * 400
    assert values["switches"] <= 6


@pytest.mark.slow
def test_programs_clocks_and_energies(folder: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    """int8 beside streams, at clocks and voltages of their own; energies by the model: cycles of each unit."""
    monkeypatch.setattr("gen.govern.measured.measure_energy", lambda circuit, *_: UnitEnergy(
        "", products=CONFIG.macs if circuit is None else 16 * CONFIG.stochastic_rows * CONFIG.pixel_lanes, lut=1, ff=0,
        dsp=0, registers=0, wires=1000 if circuit is None else 1))
    (folder / "levels.json").write_text(json.dumps({"levels": [
        {"name": "high", "mhz": 200, "volts": 1, "above": 0.5},
        {"name": "low", "mhz": 100, "volts": 0.5, "above": 0}]}))
    assert call(folder, "--levels", str(folder / "levels.json"), "--battery", "20", "--deadline", "100", "--json",
                programs=("exact.npu", "streams.npu"), shifts="") == 0
    high, low = json.loads(capsys.readouterr().out)["levels"]
    assert (high["level"], low["level"]) == ("high-exact-shift0", "low-streams-shift0")
    assert (high["mhz"], high["volts"], high["above_%"]) == (200, 1, 50) and high["accuracy_%"] == 100
    assert high["energy"] == 1_000_000 > 4 * low["energy"]
    assert {row["clock_khz"] for row in rows(folder)} == {"200000", "100000"}
    # The slower level is slower than the faster one, whose time is the deadline where none is given.
    assert call(folder, "--levels", str(folder / "levels.json"), "--battery", "20", "--json",
                programs=("exact.npu", "streams.npu"), shifts="") == 0
    assert {row["clock_khz"] for row in rows(folder)} == {"200000"}


def test_c_reads_the_same_levels(folder: Path, capsys: pytest.CaptureFixture):
    from gen.deploy.c_sources import library_files

    assert call(folder, *ENERGIES, "--battery", "5", "--json") == 0
    for name, content in library_files(CONFIG).items():
        (folder / name).write_bytes(content)
    shutil.copy(folder / "out" / "npugen_levels.h", folder)
    (folder / "levels.c").write_text("""#include "npugen_levels.h"
#include <stdio.h>
int main(void) {
    npugen_governor governor;
    if (npugen_governor_init(&governor, npugen_levels, NPUGEN_LEVEL_COUNT, &npugen_levels_plan, NPUGEN_BATTERY_ENERGY))
        return 1;
    for (unsigned i = 0; i < NPUGEN_LEVEL_COUNT; ++i)
        printf("%s %u %llu %u\\n", npugen_levels[i].name, npugen_levels[i].shift,
               (unsigned long long)npugen_levels[i].energy, npugen_levels[i].above_ppm);
    return 0;
}
""")
    example = compiled(folder, "levels.c", "npugen_governor.c", "npugen.c")
    done = subprocess.run([example], capture_output=True, text=True)
    table = LevelTable.load(folder / "out" / "governor.json")
    assert done.returncode == 0 and done.stdout.splitlines() == [
        f"{one.name} {one.shift} {one.energy} {one.above_ppm}" for one in table.levels]


def test_on_a_board(folder: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    """`python3 -m npudriver govern`, with a battery that is reckoned and with one of Linux."""
    assert call(folder, *ENERGIES, "--battery", "4", "--json") == 0
    capsys.readouterr()
    monkeypatch.setattr(commands, "open_backend", lambda url: FunctionalBackend(CONFIG))
    argv = ["govern", str(folder / "out" / "governor.json"), "--input", str(folder / "x.npz"), "--json"]
    assert commands.main(argv) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == {"samples": 6, "late": 0, "short": 0, "charge_%": 12.5,
                     "levels": {"streams-shift0": 2, "streams-shift1": 2, "streams-shift3": 2}}
    assert commands.main(argv[:-1]) == 0
    assert capsys.readouterr().out == ("6 samples, 0 late, 0 short of charge, 12.50 % left: streams-shift0 2, "
                                       "streams-shift1 2, streams-shift3 2\n")
    supply = folder / "BAT0"
    supply.mkdir()
    (supply / "capacity").write_text("50\n")
    assert commands.main([*argv, "--supply", str(supply)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["charge_%"], facts["levels"]["streams-shift1"]) == (50, 6)
    (supply / "capacity").write_text("half\n")
    assert commands.main([*argv, "--supply", str(supply)]) == 1
    assert capsys.readouterr().err == (f"npudriver govern: error: {supply}/capacity: must be a whole number of 0 or "
                                       "more, not 'half' [no-charge]\n")


@pytest.mark.parametrize("options, status, message", [
    (["--lasts", "1"], 2, "--lasts and --period go together"), (["--battery", "0"], 2, "must be from 1 to 1,000,000"),
    (["--energies", "1,2"], 2, "--energies: one for each of 3 levels, not 2"), (["--deadline", "0"], 2, "above 0"),
    (["--energies", "1,2,3"], 1, "level streams-shift1 takes no less energy than streams-shift0"),
    (["--energies", "3,2,x"], 2, "must be whole numbers from 1"), (["--hysteresis", "60"], 1, "would never come back"),
    (["--least-accuracy", "nan"], 2, "must be a number from 0 up to 100"),
    (["--levels", "none.json"], 1, "none.json: No such file"), (["--input", "none.npz"], 1, "none.npz: No such file"),
])
def test_refusals(options: list[str], status: int, message: str, folder: Path, capsys: pytest.CaptureFixture):
    assert call(folder, *ENERGIES, *options) == status
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1 and not captured.out


def test_refused_programs(folder: Path, capsys: pytest.CaptureFixture, rng: np.random.Generator):
    save_program(small.workload().program, folder / "other.npu")
    (folder / "model.onnx").write_bytes(b"no model")
    for programs, shifts, message in (
            (("exact.npu", "other.npu"), "", "the programs are for different machines"),
            (("exact.npu",), "0,1", "--shifts: no program has streams"),
            (("model.onnx",), "", "compile the model first")):
        assert call(folder, programs=programs, shifts=shifts) == 2
        captured = capsys.readouterr()
        assert message in captured.err and captured.err.count("\n") == 1, captured.err
    np.savez(folder / "x.npz", x=np.zeros((2, 8, 4, 4), np.int8))
    assert call(folder, *ENERGIES) == 1
    assert "samples need a `label` each" in capsys.readouterr().err
