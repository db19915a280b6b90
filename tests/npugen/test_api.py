"""The package `npugen`: what a user's script does, and modules of others in the way."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import npugen
from gen.cli import COMMANDS
from gen.explore.ledger import Ledger
from tests import ROOT

SAMPLES = ROOT / "examples" / "digits" / "digits_test.npz"
FLOAT, INT8 = (ROOT / "examples" / "digits" / f"digits_{kind}.onnx" for kind in ("float", "int8"))


@pytest.fixture(scope="module")
def model() -> npugen.Model:
    return npugen.compile(INT8, npugen.machine("zu3eg", 16))


def test_names():
    """All that it promises is there, and said in words; what commands do has their names."""
    for name in npugen.__all__:
        assert getattr(npugen, name).__doc__, name
    assert {"build", "compile", "explore", "profile", "prune", "quantize", "report", "run"} <= COMMANDS.keys()
    assert set(npugen.__all__) <= set(dir(npugen))
    with pytest.raises(AttributeError, match="module npugen has no attribute 'nothing'"):
        _ = npugen.nothing


@pytest.mark.slow
def test_machines():
    plain, full = npugen.machine(), npugen.machine(macs=64, features="all")
    assert str(plain) == "zu3eg, 256 MACs, features none" and "rows" in full.config.features
    assert npugen.machine(features=["gather"], input_depth=2048).config.input_depth == 2048
    assert str(npugen.machine(purpose="tiny")) == "zu3eg, 16 MACs, features none"
    assert npugen.machine(features="gather").config.features == ["gather"]
    assert plain.area.totals["lut"] > 10_000 and plain.clock.mhz > 100
    with pytest.raises(ValueError, match="unknown board 'x'"):
        npugen.machine("x")


@pytest.mark.slow
def test_a_model(model: npugen.Model, tmp_path: Path):
    assert "digits_int8 on zu3eg, 16 MACs, features none: wholly on the accelerator; " in str(model)
    model.save(tmp_path / "m.npu")
    assert (tmp_path / "m.npu").stat().st_size > 10_000
    assert model.processor_nodes == {}
    found = npugen.run(model, SAMPLES, target="functional", limit=2)
    assert (found.accuracy, found.mismatches) == (1, 0) and found.compared
    with np.load(SAMPLES) as arrays:
        again = npugen.run(model, {"image": arrays["image"], "label": arrays["label"]}, limit=2)
    assert (again.outputs["logits"] == found.outputs["logits"]).all()


@pytest.mark.slow
def test_a_profile(model: npugen.Model, tmp_path: Path):
    profile = npugen.profile(model)
    assert profile.cycles == model.cycles == sum(layer["cycles"] for layer in profile.layers)
    assert npugen.profile(model, memory="zu3eg").cycles > profile.cycles
    assert "stem" in str(profile) and profile._repr_png_().startswith(b"\x89PNG")
    profile.plot(tmp_path / "p.svg")
    assert "zu3eg, 16 MACs, features none" in (tmp_path / "p.svg").read_text()


@pytest.mark.slow
def test_a_page_of_two(model: npugen.Model, tmp_path: Path):
    path = npugen.report([model, model], tmp_path / "r.html", clock_mhz=100)
    assert path.read_text().count("npugen.report") == 2
    with pytest.raises(ValueError, match="models must be one or two, not 3"):
        npugen.report([model] * 3, tmp_path / "r.html")


@pytest.mark.slow
def test_quantised_and_pruned(tmp_path: Path):
    report = npugen.quantize(FLOAT, tmp_path / "q.onnx", SAMPLES, limit=60, method="minmax")
    assert report.agreement > 0.9 and report.samples == 12
    pruned = npugen.prune(tmp_path / "q.onnx", tmp_path / "p.onnx", npugen.machine(macs=64), density=0.5)
    assert pruned.before and pruned.after and pruned.after.total < pruned.before.total
    assert npugen.compile(tmp_path / "p.onnx", npugen.machine(macs=64)).cycles == pruned.after.total


@pytest.mark.slow
def test_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Ledger, "default_folder", lambda: tmp_path)
    found = npugen.explore(INT8, vary={"macs": [16, 64]})
    assert [one.point["macs"] for one in found.front] == [64, 16] and len(found.points) == 2
    found.plot(tmp_path / "e.pdf")
    assert (tmp_path / "e.pdf").read_bytes().startswith(b"%PDF")
    assert npugen.machine_for(INT8, macs=64).config.macs == 64


def test_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("npugen.machines.build_files", lambda board, config: {"npu.v": f"{board.clock_mhz} MHz"})
    assert npugen.build(npugen.machine("ecp5", 16), tmp_path / "x", clock_mhz=50) == [tmp_path / "x" / "npu.v"]
    assert (tmp_path / "x" / "npu.v").read_text() == "50 MHz"


@pytest.mark.full
def test_a_build(tmp_path: Path):
    paths = npugen.build(npugen.machine("ecp5", 16), tmp_path)
    assert {path.name for path in paths} >= {"npu.v", "config.json", "register_map.md", "manifest.json"}


@pytest.mark.cli
def test_modules_of_others(tmp_path: Path):
    """One line, with the place of both; of the command as of a script."""
    (tmp_path / "here").mkdir()
    (tmp_path / "sim.py").touch()
    line = (f"npugen: Python finds another module sim, {tmp_path / 'sim.py'}, before npugen's in {ROOT}; rename it, or "
            "run Python elsewhere or in an environment of its own")

    def python(*arguments: str, where: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *arguments], cwd=where, env={**os.environ, "PYTHONPATH": str(ROOT)},
                              capture_output=True, text=True)

    done = python("-m", "npugen", "boards", where=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{line}\n")
    done = python("-c", "import npugen; npugen.machine()", where=tmp_path)
    assert done.stderr.splitlines()[-1] == f"ImportError: {line}"
    done = python("-m", "npugen", "boards", where=tmp_path / "here")
    assert done.returncode == 0 and "zu3eg" in done.stdout
