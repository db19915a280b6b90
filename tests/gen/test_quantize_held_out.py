"""Trained networks, quantised by the default: on samples that were held out no loss is silent, nor that of sabotage."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import gen.quantize.draft as stages
from gen.bench.quantization import NETWORKS, Images
from gen.cli import main
from gen.quantize.insert import insert
from tests.selection import with_full

#: Samples to quantise with, and to be judged by.
_CALIBRATION, _TEST = 120, 400
_OTHERS = {network.title: network for network in NETWORKS}
_QUICK = {"mnist-8", "TinyMaix MNIST", "TinyMaix ResNet"}
#: Without images of their kind: less than 25 dB is told then.
_PICTURES = ("super resolution", "MobileNetV1 0.25", "MLPerf MobileNetV1")


def network(name: str, models: Path, digits: Path) -> tuple[onnx.ModelProto, Images]:
    if name in _OTHERS:
        return _OTHERS[name].read(models), _OTHERS[name].images(models)
    with np.load(digits / "digits_test.npz") as arrays:
        images, labels = arrays["image"], arrays["label"]
    return onnx.load(digits / "digits_float.onnx"), Images(images[:150], images[150:], labels[150:])


@pytest.fixture
def written(models: Path, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
            ) -> Callable[[str, int], tuple[str, ...]]:
    """Writes a network and its samples; gives `quantize` of it."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, most: int) -> tuple[str, ...]:
        model, images = network(name, models, digits)
        constants = {tensor.name for tensor in model.graph.initializer}
        (value,) = (value.name for value in model.graph.input if value.name not in constants)
        onnx.save(model, "m.onnx")
        rng = np.random.default_rng(0)
        for file, samples, labels, count in (("c.npz", images.calibration, None, min(most, _CALIBRATION)),
                                             ("t.npz", images.test, images.labels, most)):
            places = rng.permutation(len(samples))[:count]
            arrays = {value: samples[places].astype(np.float32)}
            np.savez(file, **arrays, **({} if labels is None else {"label": labels[places]}))
        return "quantize", "m.onnx", "--calibrate", "c.npz", "--test", "t.npz", "-o", "q.onnx", "--json"

    return write


@pytest.mark.slow
@pytest.mark.parametrize("name", with_full(["digits", *_OTHERS], *_OTHERS.keys() - _QUICK))
def test_no_silent_loss(name: str, written, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """A point at most where there are labels; where there are none, 25 dB or a line. With the range of a layer in the
    middle halved, status 1, and nothing is written.
    """
    given = written(name, 24 if name in _PICTURES else _TEST)
    assert main([*given]) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    if report["accuracy_float"] is not None:
        assert report["accuracy_quantized"] > report["accuracy_float"] - 0.0101
    elif not report["scores"]:
        poor = [sqnr for sqnr in report["outputs"].values() if sqnr is not None and sqnr < 25]
        assert not poor or "dB on 8 samples most is lost at " in err
    tensors = [row["tensor"] for row in report["layers"] if row["own_db"] and row["layer"]]
    halved = tensors[len(tensors) // 2]

    def sabotaged(model, plan, ranges, options):
        return insert(model, plan, {**ranges, halved: tuple(end / 2 for end in ranges[halved])}, options)

    monkeypatch.setattr(stages, "insert", sabotaged)
    Path("q.onnx").unlink()
    assert main([*given, "--max-loss", "1"]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert "nothing is written" in line and not Path("q.onnx").exists()
