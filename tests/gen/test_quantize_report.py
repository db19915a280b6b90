"""What quantising has cost: each output by itself and by groups of its channels, on samples that were held out."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from gen.cli import main
from gen.quantize.groups import ChannelNoise, channel_axis
from gen.quantize.report import Report, measure
from gen.run.calibration import Calibration, quantize_file
from tests.gen.float_models import FloatBuilder, detection_network
from tests.gen.quantizing import quantized

pytestmark = pytest.mark.usefixtures("elsewhere")


# -- groups ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [1, 2])
def test_groups(axis: int, rng: np.random.Generator) -> None:
    """Boxes of hundreds, scores up to 1, and scores that are hardly any; wherever an export has them."""
    noises = ChannelNoise()
    for _ in range(3):
        exact = rng.normal(size=(1, 7, 50)) * np.array([300, 1, 200, 0.7, 1e-3, 0, 1]).reshape(1, -1, 1)
        rounded = exact + rng.normal(size=exact.shape) * np.array([3, 0.5, 2, 0.5, 0, 0, 0.5]).reshape(1, -1, 1)
        noises.add(np.moveaxis(exact, 1, axis), np.moveaxis(rounded, 1, axis))
    boxes, scores, rest = noises.groups()
    assert [group.axis for group in (boxes, scores, rest)] == [axis] * 3
    assert (boxes.channels, scores.channels) == (((0, 0), (2, 2)), ((1, 1), (3, 3), (6, 6)))
    assert rest.channels == ((4, 5),)
    assert boxes.sqnr_db == pytest.approx(40, abs=1) and scores.sqnr_db == pytest.approx(5, abs=1)
    assert rest.sqnr_db is None and scores.rms == pytest.approx(0.9, abs=0.15)
    assert str(scores) == "channels 1, 3, 6" and str(rest) == "channels 4-5"


def test_no_groups(rng: np.random.Generator) -> None:
    """Of channels of one size, of one channel, and of outputs that have more channels on one sample than on another."""
    for shapes in ([(1, 8, 5, 5)], [(1, 1, 5, 5)], [(1,)], [(1, 8), (1, 9)]):
        noises = ChannelNoise()
        for shape in shapes:
            noises.add(rng.normal(size=shape), rng.normal(size=shape))
        assert noises.groups() == ()


def test_where_channels_are() -> None:
    shapes = [(1,), (1, 10), (1, 84, 8400), (1, 25200, 85), (1, 64, 5, 5), (1, 20, 20, 85), (1, 3, 20, 20, 85)]
    assert [channel_axis(shape) for shape in shapes] == [None, 1, 1, 2, 1, 3, 4]


def test_a_group_that_is_lost(rng: np.random.Generator) -> None:
    """Both of a layer's outputs are in one tensor: its large channels leave the small ones one step."""
    b = FloatBuilder(rng, [1, 3, 8, 8])
    factors = b.constant(np.repeat([1000.0, 1.0], [2, 4]).reshape(1, 6, 1, 1))
    model = b.model(b.node("Mul", b.same_conv("x", 3, 6), factors, name="y"))
    x = rng.normal(size=(20, 3, 8, 8)).astype(np.float32)
    report = measure(quantized(model, x), {"x": x})
    large, small = report.groups["y"]
    assert (large.channels, small.channels) == (((0, 1),), ((2, 5),))
    assert (report.outputs["y"] or 0) > 25 and small.sqnr_db is not None and small.sqnr_db < 3
    assert report.worst("y") == small
    (line,) = report.warnings
    assert line.startswith("warning: channels 2-5 of output y are at ") and "--keep-float" in line
    # As the decoder of a detector keeps them apart, there is nothing to warn of.
    x = rng.normal(size=(20, 3, 32, 32)).astype(np.float32)
    report = measure(quantized(detection_network(rng), x), {"x": x})
    assert report.groups and not report.warnings


def test_an_output_that_is_noise(rng: np.random.Generator) -> None:
    """Ranges of samples that are far too small."""
    b, x = FloatBuilder(rng, [1, 3, 8, 8]), rng.normal(size=(20, 3, 8, 8)).astype(np.float32)
    report = measure(quantized(b.model(b.same_conv("x", 3, 6, name="y")), x / 100), {"x": x})
    (line,) = report.warnings
    assert (report.outputs["y"] or 0) < 10 and line.startswith("warning: output y is at ") and "more samples" in line


# -- samples that are held out -----------------------------------------------------------------------------------------


@pytest.fixture
def model(rng: np.random.Generator) -> Path:
    b = FloatBuilder(rng, ["N", 3, 8, 8])
    onnx.save(b.model(b.same_conv("x", 3, 6, name="y")), "m.onnx")
    return Path("m.onnx")


@pytest.mark.parametrize(("count", "held"), [(1, 0), (2, 1), (9, 1), (10, 2), (40, 8)])
def test_how_many(count: int, held: int, model: Path, rng: np.random.Generator) -> None:
    """A fifth, at least one of two; each sample is on one side, with its label, and the same ones each time."""
    x = rng.normal(size=(count, 3, 8, 8)).astype(np.float32)
    np.savez("x.npz", x=x, label=np.arange(count))
    results = [quantize_file(model, Calibration(Path("x.npz"))) for _ in range(2)]
    assert results[0].content == results[1].content
    used = results[0].samples
    if not held:
        assert results[0].held is None and len(used) == 1
        assert any("nothing can be held out of a single sample" in remark for remark in results[0].remarks)
        return
    apart = results[0].held
    assert apart is not None and (len(used), len(apart)) == (count - held, held)
    assert used.labels is not None and apart.labels is not None
    assert sorted([*used.labels, *apart.labels]) == list(range(count))
    np.testing.assert_array_equal(apart.inputs["x"], x[apart.labels])
    assert not any("held out" in remark for remark in results[0].remarks)
    assert quantize_file(model, Calibration(Path("x.npz"), hold_out=False)).held is None


def test_reported_of_those(model: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture) -> None:
    """A sample that is ten times the others costs nothing where ranges know it, and much where they do not."""
    x = rng.normal(size=(10, 3, 8, 8)).astype(np.float32)
    np.savez("x.npz", x=x, label=np.arange(10))
    held = quantize_file(model, Calibration(Path("x.npz"))).held
    assert held is not None and held.labels is not None
    x[held.labels] *= 10
    np.savez("x.npz", x=x)
    argv = ["quantize", str(model), "--calibrate", "x.npz", "-o", "q.onnx", "--json"]
    assert main(argv) == 0
    apart = json.loads(capsys.readouterr().out)
    assert main([*argv, "--test", "x.npz"]) == 0
    same = json.loads(capsys.readouterr().out)
    assert (apart["samples"], apart["calibrated_on"], apart["measured_on"]) == (2, 8, "held out")
    assert (same["samples"], same["calibrated_on"], same["measured_on"]) == (10, 10, "test")
    assert apart["outputs"]["y"] < 5 < 25 < same["outputs"]["y"]
    assert apart["warnings"] and not same["warnings"] and apart["groups"] == {}


def test_compile_says_it(model: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture) -> None:
    np.savez("x.npz", x=rng.normal(size=(20, 3, 8, 8)).astype(np.float32))
    assert main(["compile", str(model), "--calibrate", "x.npz", "--macs", "16", "--no-check", "-o", "m.npu"]) == 0
    assert "m.onnx: quantised on 16 samples; on 4 held out: y 3" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("accuracy", "samples", "warned"), [
    (0.11, 200, True), (0.75, 200, False), (0.11, 5, False), (None, 200, False)])
def test_a_float_model_that_is_hardly_ever_right(accuracy: float | None, samples: int, warned: bool) -> None:
    """As on images that are not scaled as in its training."""
    report = Report(samples=samples, layers=(), outputs={"y": 40.0}, agreement=1.0, accuracy_float=accuracy,
                    accuracy_quantized=accuracy)
    assert [("right on 11 %" in line and "--std" in line) for line in report.warnings] == [True] * warned
