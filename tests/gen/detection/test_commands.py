"""Commands that judge a detector by annotations."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import npugen
from gen.cli import main
from tests.gen.detection.networks import bright_squares, square_finder

pytest.importorskip("pycocotools", reason="pycocotools is an extra: pip install '.[detection]'")

Found = dict[str, Path]


@pytest.fixture
def files(tmp_path: Path, rng: np.random.Generator) -> Found:
    found = bright_squares(tmp_path, rng)
    onnx.save(square_finder(rng), tmp_path / "m.onnx")
    return {**found, "m": tmp_path / "m.onnx", "o": tmp_path / "o.onnx"}


def call(capsys: pytest.CaptureFixture, *words: object, status: int = 0) -> dict:
    assert main([*map(str, words), "--json"]) == status
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("samples", ["x", "pictures"])
def test_run(samples: str, files: Found, capsys: pytest.CaptureFixture):
    words = ("run", files["m"], "--features", "none", "--calibrate", files["x"], "--input", files[samples],
             "--target", "functional", "--head", files["head"])
    found = call(capsys, *words, "--annotations", files["a"])
    assert found["precision"] == pytest.approx({"map_50": 1, "map": 1}) and found["mismatches"] == 0
    # Objects elsewhere.
    content = json.loads(files["a"].read_text())
    for one in content["annotations"]:
        one["bbox"][:2] = [(x + 8) % 32 for x in one["bbox"][:2]]
    (other := files["a"].with_name("b.json")).write_text(json.dumps(content))
    assert call(capsys, *words, "--annotations", other)["precision"]["map_50"] < 0.5
    assert main([*map(str, words), "--annotations", str(files["a"])]) == 0
    assert "mAP 100.00 % at an overlap of 0.5" in " ".join(capsys.readouterr().out.split())


def test_compare(files: Found, capsys: pytest.CaptureFixture):
    words = "compare", files["m"], "--input", files["x"], "--annotations", files["a"], "--head", files["head"]
    found = call(capsys, *words, "--calibrate", files["x"], "--limit", 3)
    assert {name: one["map_50"] for name, one in found["precision"].items()} == pytest.approx(
        {"float": 1, "quantized": 1, "machine": 1})


def test_quantize(files: Found, capsys: pytest.CaptureFixture):
    judged = "--annotations", files["a"], "--head", files["head"]
    words = "quantize", files["m"], "--calibrate", files["x"], *judged, "-o", files["o"], "--max-loss", 1
    found = call(capsys, *words)
    assert found["precision_float"]["map_50"] == found["precision_quantized"]["map_50"] == pytest.approx(1)
    # Calibrated on dark pictures alone, nothing is bright.
    np.savez(files["x"].with_name("dark.npz"), x=np.full((20, 1, 32, 32), 0.1, np.float32))
    words = ("quantize", files["m"], "--calibrate", files["x"].with_name("dark.npz"), "--test", files["x"], *judged)
    found = call(capsys, *words, "-o", files["o"])
    assert found["precision_float"]["map_50"] == pytest.approx(1) and found["precision_quantized"]["map_50"] < 0.5
    files["o"].unlink()
    assert main([*map(str, words), "-o", str(files["o"]), "--max-loss", "1"]) == 1
    said = capsys.readouterr().err
    assert "mAP at an overlap of 0.5 falls from 100.00 to " in said and "[quantisation-loss]" in said
    assert not files["o"].exists()


def test_prune(files: Found, capsys: pytest.CaptureFixture):
    """A quarter of the weights finds nothing, half of them as much as all."""
    words = ("prune", files["m"], "--calibrate", files["pictures"], "--annotations", files["a"], "--head",
             files["head"], "-o", files["o"])
    found = call(capsys, *words, "--density", 0.25)
    assert found["precision"]["before"]["map_50"] == pytest.approx(1) and found["precision"]["after"]["map_50"] < 0.5
    assert found["accuracy"]["before"] == found["precision"]["before"]["map_50"]
    found = call(capsys, *words, "--max-loss", 1)
    assert found["precision"]["after"]["map_50"] > 0.99
    assert {row["name"]: row["density"]["after"] for row in found["layers"]}["found"] < 1


def test_without_pycocotools(files: Found, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    """It is said at once, and not when all is computed."""
    monkeypatch.setattr("gen.detection.precision.find_spec", lambda name: None)
    monkeypatch.setattr("gen.cli.run.open_given", None)
    assert main(["run", str(files["m"]), "--input", str(files["x"]), "--annotations", str(files["a"]), "--head",
                 str(files["head"])]) == 1
    assert capsys.readouterr().err == ("gen run: error: mean average precision needs pycocotools: pip install "
                                       "'npugen[detection]' [missing-package]\n")


def test_options_and_files_that_do_not_go_together(files: Found, capsys: pytest.CaptureFixture):
    run = ["run", files["m"], "--features", "none", "--calibrate", files["x"], "--input", files["x"]]
    for words, status, message in (
        ([*run, "--annotations", files["a"]], 2, "--annotations and --head go together"),
        (["prune", files["m"], "--density", 0.5, "-o", files["o"], "--annotations", files["a"], "--head",
          files["head"]], 2, "--annotations goes with pictures to measure by: --calibrate"),
        ([*run, "--annotations", files["a"], "--head", files["a"]], 1, "missing required field `kind`"),
        ([*run, "--annotations", files["head"], "--head", files["head"]], 1, "missing required field `images`"),
    ):
        assert main([*map(str, words)]) == status
        said = capsys.readouterr().err
        assert message in said and said.count("\n") == 1
    content = json.loads(files["a"].read_text())
    content["images"][0]["file_name"] = "other.png"
    files["a"].write_text(json.dumps(content))
    run[-1] = files["pictures"]
    assert main([*map(str, run), "--annotations", str(files["a"]), "--head", str(files["head"])]) == 1
    assert "no picture is called 00.png [no-annotation]" in capsys.readouterr().err


def test_from_python(files: Found):
    judge = npugen.judge(files["a"], files["head"])
    machine = npugen.machine(macs=64)
    model = npugen.compile(files["m"], machine, calibrate=files["x"])
    with np.load(files["x"]) as arrays:
        found = npugen.run(model, {"x": arrays["x"]}, judge=judge, limit=4)
    assert found.precision is not None and found.precision.map_50 == pytest.approx(1)
    assert npugen.run(model, files["pictures"], limit=2).precision is None
    report = npugen.quantize(files["m"], files["o"], files["pictures"], judge=judge)
    assert report.precision_quantized is not None and report.precision_quantized.map_50 == pytest.approx(1)
    pruned = npugen.prune(files["m"], files["o"], npugen.machine(), density=0.25, calibrate=files["x"], judge=judge)
    assert pruned.precision is not None and pruned.precision[1].map_50 < 0.5 < pruned.precision[0].map_50
