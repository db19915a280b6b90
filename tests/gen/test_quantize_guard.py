"""A loss by quantising is reported: ranges that clip more than they gain, and what --max-loss does not allow."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import gen.quantize.draft as stages
from gen.cli import main
from gen.detection.precision import Precision
from gen.quantize.guard import excess, worse_than
from gen.quantize.insert import insert
from gen.quantize.options import QuantizeOptions
from gen.quantize.ranges import BINS, Distribution, entropy_misleads, range_of
from gen.quantize.report import LayerNoise, Report
from tests.gen.cli.calls import error_line
from tests.gen.float_models import FloatBuilder

ENTROPY = QuantizeOptions(method="entropy")

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def given(digits: Path) -> tuple[str, ...]:
    """`quantize` of the digits, of which 60 are held out."""
    with np.load(digits / "digits_test.npz") as arrays:
        np.savez("some.npz", image=arrays["image"][:300], label=arrays["label"][:300])
    return "quantize", str(digits / "digits_float.onnx"), "--calibrate", "some.npz", "-o", "q.onnx"


def halved(monkeypatch: pytest.MonkeyPatch, tensor: str) -> None:
    """Sabotages the quantiser: the range of one tensor is half of what it should be."""
    def sabotaged(model, plan, ranges, options):
        assert tensor in ranges
        return insert(model, plan, {**ranges, tensor: tuple(end / 2 for end in ranges[tensor])}, options)

    monkeypatch.setattr(stages, "insert", sabotaged)


@pytest.mark.slow
@pytest.mark.parametrize(("tensor", "layer"), [("image", "input image"), ("stem", "stem"), ("pointwise", "pointwise"),
                                               ("logits", "logits")])
def test_a_halved_range(tensor: str, layer: str, given: tuple[str, ...], monkeypatch: pytest.MonkeyPatch,
                        capsys: pytest.CaptureFixture):
    """It may leave the answers as they are: a warning names the tensor, and with a bound it is an error."""
    halved(monkeypatch, tensor)
    assert main([*given]) == 0
    warning = [line for line in capsys.readouterr().err.splitlines() if "clip more than they gain" in line]
    assert len(warning) == 1 and f" {tensor} of " in warning[0] and "--method minmax" in warning[0]
    Path("q.onnx").unlink()
    line = error_line(capsys, 1, *given, "--max-loss", "50", "--json")
    assert "digits_float.onnx: " in line and f"{layer}" in line and "nothing is written" in line
    assert not Path("q.onnx").exists()


@pytest.mark.slow
def test_as_it_should_be(given: tuple[str, ...], capsys: pytest.CaptureFixture):
    assert main([*given, "--max-loss", "4"]) == 0
    assert "warning" not in capsys.readouterr().err and Path("q.onnx").exists()


def test_outputs_that_are_no_scores(capsys: pytest.CaptureFixture):
    """A point is a hundredth of the energy."""
    rng = np.random.default_rng(0)
    b = FloatBuilder(rng, ["N", 3, 8, 8])
    onnx.save(b.model(b.same_conv(b.same_conv("x", 3, 8, name="first"), 8, 2, name="y")), "m.onnx")
    np.savez("x.npz", x=rng.normal(size=(40, 3, 8, 8)).astype(np.float32))
    given = "quantize", "m.onnx", "--calibrate", "x.npz", "-o", "q.onnx", "--max-loss"
    line = error_line(capsys, 1, *given, "0.0001", "--json")
    assert "m.onnx: output y is at " in line and "more than 0.0001 % of its energy" in line and "--keep-float" in line
    assert main([*given, "1"]) == 0


def report(**changes: object) -> Report:
    rows = tuple(LayerNoise(name, "Conv", f"{name}.out", 0.1, 0, sqnr) for name, sqnr in
                 [("a", 40.0), ("b", 38.0), ("c", 12.0), ("d", 14.0), ("e", 9.0)])
    plain = Report(100, rows, {"y": 9.0}, 0.99, 0.98, 0.95, scores=True)
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_what_is_said() -> None:
    assert excess(report(), 3) == ""
    line = excess(report(), 1)
    assert "accuracy falls from 98.00 to 95.00 %, by more than 1 points" in line
    assert "most at c (c.out), 26.0 dB to 12.0, e (e.out), 3.0 dB to 9.0, b" in line and "--keep-float c" in line
    unlabelled = report(accuracy_float=None, accuracy_quantized=None)
    assert excess(unlabelled, 1) == "" and "1.00 % of the answers are others" in excess(unlabelled, 0.5)
    image = replace(unlabelled, scores=False)
    assert "output y is at 9.0 dB" in excess(image, 1) and excess(image, 13) == ""
    clipped = report(layers=(LayerNoise("a", "Conv", "a.out", 0.1, 0, 20.0, 10.0, 30.0),), accuracy_quantized=0.98)
    assert "the range clips a (a.out) at 10.0 dB, 30.0 with all values" in excess(clipped, 1)


@pytest.mark.slow
def test_a_method_that_is_worse(given: tuple[str, ...], capsys: pytest.CaptureFixture):
    """On the samples that were held out, by the whole model."""
    assert main([*given, "--method", "percentile", "--percentile", "80"]) == 0
    line, = [text for text in capsys.readouterr().err.splitlines() if "--method minmax is better on these" in text]
    assert "output logits at " in line and "in place of" in line
    assert main([*given, "--method", "entropy"]) == 0
    assert "is better on these" not in capsys.readouterr().err


def test_by_how_much() -> None:
    assert worse_than(report(), report(outputs={"y": 11.9}, accuracy_quantized=0.96), "minmax") == ""
    assert "output y at 12.1 in place of 9.0 dB" in worse_than(report(), report(outputs={"y": 12.1}), "minmax")
    assert "accuracy 97.00 in place of 95.00 %" in worse_than(report(), report(accuracy_quantized=0.97), "minmax")
    found = [report(precision_float=Precision(0.9, 0.8), precision_quantized=Precision(share, 0.5))
             for share in (0.8, 0.82)]
    assert "mAP at an overlap of 0.5 82.00 in place of 80.00 %" in worse_than(*found, "minmax")
    assert worse_than(*found[::-1], "minmax") == ""
    assert "mAP at an overlap of 0.5 falls from 90.00 to 82.00 %, by more than 7 points" in excess(found[1], 7)
    assert excess(found[1], 9) == ""


def test_divergence_that_misleads() -> None:
    """Channels that are always the same fill a few bins; what says something is beyond."""
    values = np.concatenate([np.repeat([0.02, 0.05, 0.11], 200_000), np.linspace(0.1, 4, 40_000)])
    counts = np.bincount((values / 4 * BINS).astype(int).clip(0, BINS - 1) + BINS, minlength=2 * BINS)
    spikes = Distribution(counts, 0.0, 4.0)
    assert entropy_misleads(spikes, ENTROPY) and range_of(spikes, ENTROPY) == (0.0, 4.0)


def test_divergence_that_does_not() -> None:
    values = np.abs(np.random.default_rng(0).laplace(size=1_000_000))
    counts = np.bincount((values / values.max() * BINS).astype(int).clip(0, BINS - 1) + BINS, minlength=2 * BINS)
    smooth = Distribution(counts, 0.0, float(values.max()))
    assert not entropy_misleads(smooth, ENTROPY)
    assert range_of(smooth, ENTROPY)[1] < 0.95 * values.max()
