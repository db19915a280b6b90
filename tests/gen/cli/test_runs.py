"""Models compiled and run: results, labels, pictures, comparison."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from boards.registry import get_board
from gen.cli import main
from gen.program.file import load_program
from gen.run.workload import open_workload
from sim import functional
from tests.gen.cli.calls import error_line


def test_compile_run_disasm(model: str, samples: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["compile", model, "--macs", "64", "-o", "digits.npu", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    program = load_program(tmp_path / "digits.npu")
    assert facts["instructions"] == len(program.instructions) and facts["layers"] == len(program.layers)
    argv = ["run", "digits.npu", "--input", samples, "--limit", "3", "--target", "functional"]
    assert main([*argv, "-o", "out/y.npz", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) == {"target", "samples", "outputs", "cycles", "seconds", "host_seconds", "mismatches",
                           "accuracy", "accuracies", "precision"}
    assert (result["target"], result["samples"], result["mismatches"]) == ("functional", 3, 0)
    assert result["outputs"] == {"logits": [3, 10]} and result["cycles"] is None
    with np.load(tmp_path / "out" / "y.npz") as outputs, np.load(samples) as data:
        right = outputs["logits"].argmax(1) == data["label"][:3]
    assert result["accuracy"] == pytest.approx(right.mean())
    assert main(["disasm", "digits.npu"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == facts["instructions"]
    assert main(["disasm", "digits.npu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["instructions"][-1]["operation"] == "end"


def test_features(model: str, samples: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["compile", model, "--features", "depthwise", "-o", "with.npu"]) == 0
    assert main(["compile", model, "--features", "none", "-o", "without.npu"]) == 0
    assert [load_program(tmp_path / name).config.depthwise for name in ("with.npu", "without.npu")] == [1, 0]
    assert main(["run", "with.npu", "--input", samples, "--limit", "1", "--target", "functional"]) == 0
    capsys.readouterr()
    line = error_line(capsys, 2, "run", "with.npu", "--input", samples, "--depthwise", "plain")
    assert "compile the model with --depthwise plain" in line
    line = error_line(capsys, 2, "run", "with.npu", "--input", samples, "--features", "none")
    assert "compiled for another configuration" in line and "depthwise 1 (program) / 0" in line


@pytest.mark.rtl
def test_narrow_winograd(model: str, samples: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    """Layers and their shifts are in the program, which computes what the reference does with them."""
    machine = ["--macs", "64", "--features", "winograd"]
    assert main(["compile", model, *machine, "--winograd", "narrow", "-o", "safe.npu"]) == 0
    calibrated = ["--winograd-calibrate", samples]
    assert main(["compile", model, *machine, "--winograd", "narrow", *calibrated, "-o", "fit.npu"]) == 0
    assert main(["compile", model, *machine, "-o", "without.npu"]) == 0
    safe, fit, without = (load_program(tmp_path / f"{name}.npu").winograd for name in ("safe", "fit", "without"))
    assert without == {} and safe.keys() == fit.keys() and len(safe) == 2
    assert set(safe.values()) == {(2,) * 16} and (2,) * 16 not in fit.values()
    capsys.readouterr()
    for program in ("safe.npu", "fit.npu"):
        assert main(["run", program, "--input", samples, "--limit", "4", "--target", "functional", "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert (result["mismatches"], result["accuracy"]) == (0, 1.0)
    line = error_line(capsys, 2, "run", "safe.npu", "--input", samples, "--winograd", "narrow")
    assert "compile the model with --winograd narrow" in line
    line = error_line(capsys, 1, "compile", model, "--winograd", "narrow", "-o", "no.npu")
    assert "need a machine with winograd=1 (--features winograd), not 0" in line
    line = error_line(capsys, 1, "compile", model, *machine, "--winograd", "exact", "-o", "no.npu")
    assert "need a machine with winograd=2 (--winograd-unit 2), not 1" in line


def test_density_prunes_program_and_reference_alike(model: str, samples: str, capsys: pytest.CaptureFixture):
    argv = ["run", model, "--input", samples, "--limit", "2", "--macs", "64", "-o", "y.npz", "--json"]
    results = []
    for extra in (["--target", "reference"], ["--target", "reference", "--density", "0.25"],
                  ["--target", "functional", "--density", "0.25"]):
        assert main([*argv, *extra]) == 0
        assert json.loads(capsys.readouterr().out)["mismatches"] == (None if "reference" in extra else 0)
        with np.load("y.npz") as outputs:
            results.append(outputs["logits"])
    assert (results[0] != results[1]).any()
    np.testing.assert_array_equal(results[1], results[2])


def test_mismatches_fail(model: str, samples: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    program = open_workload(Path(model), get_board("zu3eg").config(256)).program
    original = functional.run

    def spoiled(config, code, memory, **options):
        original(config, code, memory, **options)
        memory[program.tensors[program.outputs["logits"]].offset * config.beat_bytes] ^= 1
        memory[-1] ^= 1  # after the last tensor: must not count

    monkeypatch.setattr(functional, "run", spoiled)
    assert main(["run", model, "--features", "none", "--input", samples, "--limit", "2", "--target", "functional",
                 "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["mismatches"] == 2
    assert "gen run: error: 2 values differ from the reference, first in tensor" in captured.err


def test_a_label_below_zero_is_none(model: str, samples: str, capsys: pytest.CaptureFixture):
    image = np.load(samples)["image"][:3]
    for labels, accuracy in (([-1, -1, -1], None), ([5, -1, 0], 0.5)):  # 5, 7 and 8 are right
        np.savez("x.npz", image=image, label=labels)
        assert main(["run", model, "--features", "none", "--input", "x.npz", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["accuracy"] == accuracy
    assert main(["run", model, "--features", "none", "--input", "x.npz"]) == 0
    assert "-1" not in capsys.readouterr().out


@pytest.mark.parametrize("command", [["run", "--features", "none"], ["compare"]])
def test_pictures(command: list[str], model: str, capsys: pytest.CaptureFixture):
    Image.new("RGB", (64, 48)).save("picture.png")
    assert main([*command, model, "--input", "picture.png", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["samples"] == 1
    assert captured.err == "picture.png: 64 x 48 RGB converted to 16 x 16 gray; pixels 0..255 are taken as 0..1\n"


def test_compare_with_onnxruntime(model: str, samples: str, capsys: pytest.CaptureFixture):
    assert main(["compare", model, "--input", samples, "--limit", "3", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["samples"] == 3 and max(row["largest"] for row in result["layers"]) <= 1


@pytest.mark.slow
def test_results_say_which_machine_they_are_of(model: str, monkeypatch: pytest.MonkeyPatch,
                                               capsys: pytest.CaptureFixture):
    monkeypatch.setattr("cores.emit.emit_verilog", lambda config: "")
    machine = ["--board", "ecp5", "--macs", "16", "--features", "gather"]
    line = "machine: ecp5, 16 MACs, features gather\n"
    assert main(["build", *machine, "-o", "out"]) == 0
    assert line in capsys.readouterr().err
    assert main(["compile", model, *machine, "-o", "digits.npu"]) == 0
    assert line in capsys.readouterr().err
    assert main(["profile", "digits.npu"]) == 0
    assert capsys.readouterr().out.startswith(line)
    assert main(["compile", model, "--config", "out/config.json", "-o", "any.npu"]) == 0
    assert "\nmachine: 16 MACs, features gather\n" in capsys.readouterr().err
    assert main(["profile", model, "--features", "none"]) == 0
    assert capsys.readouterr().out.startswith("machine: zu3eg, 256 MACs, features none\n")
