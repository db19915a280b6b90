"""`gen compile` compares a random sample with onnxruntime: a wrong layer is named, whatever made it wrong."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gen.cli import main
from gen.onnx.importer import Imported
from gen.partition.partition import Partition
from tests.gen.qdq import Builder


@pytest.fixture
def model(rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Five layers, of which the importer spoils four: from the second on, each by one step more than the last."""
    b = Builder(rng)
    y = b.dequantize(b.input(1, 3, 6, 6))
    for source, channels in ((3, 8), (8, 8), (8, 8), (8, 8), (8, 5)):
        y = b.requantize(b.node("Conv", y, b.weights(channels, source, 3, 3), pads=[1, 1, 1, 1]), 0.1)
    b.output(y, np.float32)
    monkeypatch.chdir(tmp_path)

    def spoiled(cut: Partition) -> Imported:
        imported = cut.segments[0].imported
        layers = [replace(layer, requantize=replace(layer.requantize, zero_point=layer.requantize.zero_point + steps))
                  for steps, layer in zip((0, 2, 3, 4, 5), imported.graph.layers, strict=True)]
        return replace(imported, graph=replace(imported.graph, layers=layers))

    monkeypatch.setattr(Partition, "whole", property(spoiled))
    return b.save(tmp_path).name


def test_wrong_layers_are_named(model: str, capsys: pytest.CaptureFixture) -> None:
    """The worst three by name; the program is written all the same."""
    assert main(["compile", model, "--features", "none", "-o", "y.npu", "--json"]) == 0
    captured = capsys.readouterr()
    check = json.loads(captured.out)["check"]
    assert check["largest"] == 5 and [layer["largest"] for layer in check["layers"]] == [5, 4, 3, 2]
    warnings = [line for line in captured.err.splitlines() if "warning" in line]
    assert [line.partition(" on a random")[0] for line in warnings[:3]] == [
        f"{model}: warning: layer {layer['name']} is up to {layer['largest']} units from onnxruntime"
        for layer in check["layers"][:3]]
    assert warnings[3:] == [f"{model}: warning: and 1 more layers; --json lists all"]
    assert Path("y.npu").is_file()


def test_no_check(model: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["compile", model, "--features", "none", "-o", "y.npu", "--json", "--no-check"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["check"] is None and "warning" not in captured.err


def test_a_right_model(rng: np.random.Generator, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    b = Builder(rng)
    b.output(b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(8, 3, 3, 3)), 0.1), np.float32)
    assert main(["compile", str(b.save(tmp_path)), "--features", "none", "-o", str(tmp_path / "y.npu"), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["check"]["layers"] == [] and "warning" not in captured.err
