"""Session files and data sets, which need no PyTorch."""

import json
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gen.cli import main
from gen.train.data import read_dataset
from gen.train.errors import TrainError
from gen.train.session import Data, Prune, TrainingSession, TrainingStage, read_session
from tests import ROOT

SESSION: dict[str, Any] = {"model": "m.onnx", "train": {"path": "d.npz"}, "stages": [{"epochs": 1}]}


def write(folder: Path, content: object) -> Path:
    path = folder / "session.json"
    path.write_text(json.dumps(content))
    return path


def test_a_session_has_all_of_it(tmp_path: Path):
    stage = {"epochs": 2, "lr": 0.5, "prune": {"density": 0.25, "kind": "magnitude", "macs": 64}}
    found = read_session(write(tmp_path, {**SESSION, "mean": [0.5], "seed": 3, "stages": [stage]}))
    assert found == TrainingSession(model="m.onnx", train=Data(path="d.npz"), mean=(0.5,), seed=3, stages=(
        TrainingStage(epochs=2, lr=0.5, prune=Prune(density=0.25, kind="magnitude", macs=64)),))


@pytest.mark.parametrize(("change", "message"), [
    ({"stages": []}, "Expected `array` of length >= 1 - at `$.stages`"),
    ({"stages": [{"epochs": 0}]}, "Expected `int` >= 1 - at `$.stages[0].epochs`"),
    ({"stages": [{"epochs": 1, "rate": 1}]}, "unknown field `rate` - at `$.stages[0]`"),
    ({"stages": [{"epochs": 1, "prune": {"density": 2}}]}, "Expected `float` <= 1"),
    ({"stages": [{"epochs": 1, "prune": {"density": 1, "macs": 7}}]}, "macs must be one of 16, 32, 64, 128, 256, 512"),
    ({"stages": [{"epochs": 1, "prune": {"kind": "apoz", "density": 0.5}}]}, "kind apoz needs ratio or threshold"),
    ({"stages": [{"epochs": 1, "prune": [{"ratio": 0.5}]}]}, "kind block needs density, and only that, not ratio"),
    ({"stages": [{"epochs": 1, "prune": {}}]}, "kind block needs density, and only that, not nothing"),
    ({"stages": [{"epochs": 1, "prune": {"density": 0.5, "floor": 0.5}}]}, "floor is of channels, kind block of"),
    ({"stages": [{"epochs": 1, "repeat": 2}]}, "repeat is of stages that prune"),
    ({"budget": {}}, "a budget has cycles, parameters or loss"),
    ({"budget": {"loss": 1}}, "a budget of loss needs test data"),
    ({"macs": 7}, "macs must be one of 16, 32"),
    ({"model": 3}, "Expected `str`, got `int` - at `$.model`"),
    ({"std": [0]}, "Expected `float` > 0"),
])
def test_wrong_sessions(change: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    path, output = write(tmp_path, {**SESSION, **change}), tmp_path / "y.onnx"
    assert main(["train", str(path), "-o", str(output)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"{path}: " in said and message in said and not output.exists()


@pytest.mark.parametrize("path", [path for folder in ("detection", "pruning", "transformer")
                                  for path in sorted((ROOT / "examples" / folder).glob("*.json"))
                                  if not path.stem.endswith("_head")],
                         ids=lambda path: path.stem)
def test_the_examples_are_sessions(path: Path):
    assert read_session(path).stages


def test_files_that_are_no_session(tmp_path: Path):
    for name, content, message in (("a.txt", b"x", "a session is a .json or .yaml file"), ("a.json", b"{", "truncated"),
                                   ("b.json", b"[]", "Expected `object`, got `array`"),
                                   ("c.json", b'{"model": "\xf3"}', "not JSON: text is UTF-8")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TrainError, match=message):
            read_session(tmp_path / name)


@pytest.mark.slow
def test_a_few_lines_of_yaml_that_stand_for_billions(tmp_path: Path):
    path = tmp_path / "s.yaml"
    path.write_text("a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)))
    with pytest.raises(TrainError, match="more than 1,048,576 values, by names that stand for others"):
        read_session(path)


def test_yaml(tmp_path: Path):
    path = tmp_path / "s.yaml"
    path.write_text("model: m.onnx\ntrain: {path: d.npz}\nstages:\n  - epochs: 1\n")
    if find_spec("yaml") is None:
        with pytest.raises(TrainError, match="YAML needs the package pyyaml"):
            read_session(path)
    else:
        assert read_session(path) == read_session(write(tmp_path, SESSION))


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is there")
def test_without_torch(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["train", str(write(tmp_path, SESSION)), "-o", str(tmp_path / "y.onnx")]) == 1
    assert capsys.readouterr().err == ("gen train: error: training needs PyTorch: pip install 'npugen[train]' "
                                       "[missing-package]\n")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Three classes of four images each, of one gray: class and number."""
    for label, name in enumerate(("ant", "bee", "cat")):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (5, 4), (10 * label + number,) * 3).save(tmp_path / "images" / name / f"{number}.png")
    return tmp_path / "images"


@pytest.mark.parametrize("zipped", [False, True])
def test_images_of_a_folder(zipped: bool, images: Path, tmp_path: Path):
    """Classes in the order of their names, taken in turn, so that each part has all."""
    if zipped:
        with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
            for path in images.rglob("*.png"):
                archive.write(path, path.relative_to(images))
        images = tmp_path / "images.zip"
    session = TrainingSession(model="", train=Data(path=""), mean=(0.1,), std=(0.5,), stages=(TrainingStage(epochs=1),))
    found = read_dataset(Data(path=images.name, first=3, count=6), session, tmp_path, name="x", shape=(3, 4, 5))
    assert found.labels.tolist() == [0, 1, 2] * 2
    pixels = np.array([1, 11, 21, 2, 12, 22], np.float32)
    np.testing.assert_allclose(found.inputs[:, 1, 2, 3], (pixels / 255 - 0.1) / 0.5, rtol=1e-5)


def test_arrays(tmp_path: Path, rng: np.random.Generator):
    values, labels = rng.normal(size=(7, 2, 3)).astype(np.float32), rng.integers(0, 5, 7)
    np.savez(tmp_path / "d.npz", x=values, label=labels)
    session = TrainingSession(model="", train=Data(path=""), stages=(TrainingStage(epochs=1),))
    found = read_dataset(Data(path="d.npz", first=2, count=4), session, tmp_path, name="x", shape=(2, 3))
    np.testing.assert_array_equal(found.inputs, values[2:6])
    np.testing.assert_array_equal(found.labels, labels[2:6])
    for name, shape, first, message in (("y", (2, 3), 0, "has no array 'y', which training needs; it has x, label"),
                                        ("x", (4, 3), 0, "must be float of shape .samples, 4, 3., not float32"),
                                        ("x", (2, 3), 9, "there are no samples from 9 on")):
        with pytest.raises(TrainError, match=message):
            read_dataset(Data(path="d.npz", first=first), session, tmp_path, name=name, shape=shape)
    (tmp_path / "bad.zip").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(TrainError, match="bad.zip: damaged"):
        read_dataset(Data(path="bad.zip"), session, tmp_path, name="x", shape=(2, 3))
