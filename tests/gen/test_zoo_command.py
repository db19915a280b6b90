"""`gen zoo`: models in files, lists, and refusals that leave nothing behind."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from gen.cli import main
from gen.zoo.registry import NETWORKS


def test_writes_a_model(tmp_path: Path, capsys: pytest.CaptureFixture):
    path = tmp_path / "new" / "lenet5.onnx"
    assert main(["zoo", "lenet5", "-o", str(path), "--seed", "3", "--classes", "4", "--size", "32x40", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "model": str(path), "network": "lenet5", "seed": 3, "inputs": {"image": [1, 1, 32, 40]},
        "outputs": {"f5": [1, 4]}, "nodes": 12, "weights": 105_126, "macs": 755_376}
    assert captured.err == ""
    onnx.checker.check_model(str(path), full_check=True)
    first = path.read_bytes()
    assert main(["zoo", "lenet5", "-o", str(path), "--seed", "4"]) == 0
    assert capsys.readouterr().err == f"{path}: LeNet-5, 12 nodes, 61,470 weights, 416,520 MACs\n"
    assert path.read_bytes() != first


def test_pictures(tmp_path: Path):
    """Samples for the model's input, over its range."""
    path = tmp_path / "pictures.npz"
    assert main(["zoo", "lenet5", "-o", str(tmp_path / "lenet5.onnx"), "--pictures", str(path), "--size", "32x40"]) == 0
    images = np.load(path)["image"]
    assert (images.shape, images.dtype) == ((16, 1, 32, 40), np.float32)
    assert 0 <= images.min() < 0.1 and 0.9 < images.max() <= 1
    ort.InferenceSession(tmp_path / "lenet5.onnx").run(None, {"image": images[:1]})


def test_lists(capsys: pytest.CaptureFixture):
    assert main(["zoo", "--list"]) == 0
    text = capsys.readouterr().out
    assert [line.split()[0] for line in text.splitlines()] == ["name", *NETWORKS]
    assert main(["zoo", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["networks"]
    assert [row["name"] for row in listed] == list(NETWORKS)
    assert {"name": "yolov3", "title": "YOLOv3", "input": [3, 416, 416], "classes": 80} in listed


@pytest.mark.parametrize(("argv", "status", "words"), [
    (["resnet34", "-o", "x.onnx"], 2, "no network 'resnet34' in the zoo (is resnet50 meant?); it has vgg16"),
    (["lenet5"], 2, "give NAME and -o F.onnx; `python -m gen zoo --list` has the names"),
    (["-o", "x.onnx"], 2, "give NAME and -o F.onnx"),
    (["lenet5", "--list"], 2, "--list goes without NAME, -o and --pictures"),
    (["lenet5", "-o", "x.onnx", "--pictures", "x.onnx"], 2, "-o and --pictures are both x.onnx"),
    (["lenet5", "-o", "x.onnx", "--size", "28"], 2, "argument --size: must be height and width, such as 224x224"),
    (["lenet5", "-o", "x.onnx", "--size", "30x28"], 2, "--size 30x28: lenet5 takes sides of 20 to 448 in steps of 4"),
    (["lenet5", "-o", "x.onnx", "--seed", "-1"], 2, "argument --seed: must be a whole number from 0 on, not -1"),
    (["lenet5", "-o", "x.onnx", "--classes", "0"], 2, "--classes 0: must be 2 to 10,000"),
    (["lenet5", "-o", "."], 1, ".: Is a directory"),
])
def test_refusals(argv: list[str], status: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                  capsys: pytest.CaptureFixture):
    monkeypatch.chdir(tmp_path)
    assert main(["zoo", *argv]) == status
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert captured.err.startswith("gen zoo: error: ") and words in captured.err
    assert list(tmp_path.iterdir()) == []
