"""Detectors in sessions: their pictures, what changes them at random, and what is learnt."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from gen.cli import main
from gen.detection.heads.registry import read_head
from gen.detection.judge import Judge
from gen.detection.read import read_annotations
from gen.ir import reference
from gen.onnx.importer import load_model
from gen.prune.plan import read_model
from gen.quantize.quantize import quantize
from tests.gen.detection.networks import bright_squares, square_finder

pytest.importorskip("pycocotools", reason="pycocotools is an extra: pip install '.[detection]'")
torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install '.[train]'")

from gen.train.detector import Detector, part_of_pictures  # noqa: E402
from gen.train.errors import TrainError  # noqa: E402
from gen.train.fit import Trained, train  # noqa: E402
from gen.train.pictures import read_pictures  # noqa: E402
from gen.train.session import Budget, Data, Prune, TrainingSession, TrainingStage, read_session  # noqa: E402


@pytest.fixture
def folder(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A detector that has forgotten what is bright, and its pictures."""
    bright_squares(tmp_path, rng, count=24)
    model = square_finder(rng)
    for tensor in model.graph.initializer:
        if tensor.dims == [6, 16, 1, 1]:
            tensor.CopyFrom(numpy_helper.from_array(
                rng.normal(0, 0.1, tensor.dims).astype(np.float32), tensor.name))
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path


def session_of(folder: Path, *stages: TrainingStage, **fields: Any) -> TrainingSession:
    return TrainingSession(model="m.onnx", train=Data(path="a.json", images="pictures"), macs=64, seed=3,
                           test=Data(path="a.json", images="pictures", count=8), stages=stages,
                           head=read_head(folder / "head.json"), **fields)


def run(session: TrainingSession, folder: Path, keep: Path | None = None, progress: Any = lambda text: None) -> Trained:
    return train(session, read_model(folder / "m.onnx"), folder, name="m.onnx", keep=keep, progress=progress)


def test_a_head_in_a_file_of_its_own(folder: Path):
    stages = [{"epochs": 1}]
    (folder / "s.json").write_text(json.dumps({"model": "m.onnx", "train": {"path": "a.json"}, "stages": stages,
                                               "head": "head.json"}))
    assert read_session(folder / "s.json").head == read_head(folder / "head.json")


def test_pictures(folder: Path):
    session = session_of(folder, TrainingStage(epochs=1), mean=(0.5,), std=(0.25,))
    assert session.head is not None
    found = read_pictures(Data(path="a.json", images="pictures", first=2, count=3), session, session.head, folder,
                          shape=(1, 32, 32))
    with np.load(folder / "x.npz") as arrays:
        np.testing.assert_allclose(found.first(2), (arrays["x"][2:4] - 0.5) / 0.25, atol=1e-5)
    annotations = json.loads((folder / "a.json").read_text())["annotations"]
    wanted = [[one["image_id"] - 2, 0, (one["bbox"][0] + 4) / 32, (one["bbox"][1] + 4) / 32, 0.25, 0.25]
              for one in annotations if 2 <= one["image_id"] < 5]
    np.testing.assert_allclose(found.objects, wanted)
    assert len(found) == len(found.expected.pictures) == 3
    # What is wanted of a batch has its numbers, in the order that was drawn.
    inputs, objects = Detector(session).batch(found, torch.tensor([2, 0]))
    np.testing.assert_array_equal(inputs[0], found.inputs(found.pixels[2]))
    for number, picture in ((0, 2), (1, 0)):
        mine = objects[objects[:, 0] == number][:, 2:]
        np.testing.assert_array_equal(mine, found.objects[found.objects[:, 0] == picture][:, 2:])


def test_parts_of_pictures_and_of_their_objects(rng: np.random.Generator):
    """What is cut, enlarged and mirrored is the same as by hand; objects go where their pixels go."""
    pixels = torch.from_numpy(rng.random((3, 1, 8, 8)).astype(np.float32))
    objects = torch.tensor([[0, 0, 0.5, 0.625, 0.25, 0.25], [0, 1, 0.9, 0.2, 0.1, 0.1], [1, 2, 0.75, 0.375, 0.75, 0.25],
                            [2, 3, 0.5, 0.5, 1.0, 0.5]])
    begin, share = torch.tensor([[0.25, 0.5], [0.5, 0.0], [-0.5, -0.5]]), torch.tensor([0.5, 0.5, 2.0])
    changed, rows = part_of_pictures(pixels, objects, begin, share, torch.tensor([False, True, False]))
    # Halves of four pixels, twice as large: the middle of each pixel of the part is between two of the result.
    inner = changed[:, :, 1:-1, 1:-1].reshape(3, 1, 3, 2, 3, 2).mean((3, 5))
    for number, part in ((0, pixels[0, :, 4:, 2:6]), (1, pixels[1, :, :4, 4:].flip(-1))):
        between = (part[:, 1:] + part[:, :-1]) / 2
        np.testing.assert_allclose(inner[number], (between[:, :, 1:] + between[:, :, :-1]) / 2, atol=1e-5)
    # The whole picture at half the size, with zeros around it.
    assert not changed[2, :, :2].any() and not changed[2, :, :, 6:].any()
    np.testing.assert_allclose(changed[2, :, 2:6, 2:6], pixels[2].reshape(1, 4, 2, 4, 2).mean((2, 4)), atol=1e-5)
    # The second object is outside; the third is mirrored, and ends with the part.
    np.testing.assert_allclose(rows, [[0, 0, 0.5, 0.25, 0.5, 0.5], [1, 2, 0.5, 0.75, 1.0, 0.5],
                                      [2, 3, 0.5, 0.5, 0.5, 0.25]], atol=1e-6)


def test_a_detector_learns(folder: Path):
    session = session_of(folder, TrainingStage(epochs=30, batch=8, lr=0.05, optimizer="adam"))
    found = run(session, folder)
    assert found.measure.startswith("mAP") and found.before is not None and found.before < 0.3
    assert found.epochs[-1].loss < found.epochs[0].loss / 4
    assert found.epochs[-1].accuracy == pytest.approx(1, abs=0.05)
    # Mirrored and enlarged at random it learns, too, and not the same.
    other = run(msgspec.structs.replace(session, mirror=True, zoom=(0.9, 1.2), stages=(
        TrainingStage(epochs=3, batch=8, lr=0.05, optimizer="adam"),)), folder)
    assert other.epochs[-1].loss < other.epochs[0].loss
    assert [one.loss for one in other.epochs] != [one.loss for one in found.epochs[:3]]


def test_pruned_within_a_loss_of_precision(folder: Path, rng: np.random.Generator):
    """Without weights nothing is found: the budget keeps the model before that."""
    onnx.save(square_finder(rng), folder / "m.onnx")
    session = session_of(folder, TrainingStage(epochs=1, lr=1e-9, prune=Prune(
        kind="magnitude", threshold=100.0, layers=("found",))), budget=Budget(loss=5))
    found = run(session, folder)
    assert found.before == pytest.approx(1) and found.name == "start", found.variants
    assert [one.accuracy for one in found.variants] == pytest.approx([1, 0], abs=0.5)
    assert "loses more than the budget's points" in found.ended


def test_a_quantised_detector_learns(folder: Path):
    """With scales that are learnt, from a random head; what comes of it is as good on the machine."""
    with np.load(folder / "x.npz") as arrays:
        x = arrays["x"]
    onnx.save(quantize(onnx.load(folder / "m.onnx"), {"x": x}).model, folder / "m.onnx")
    found = run(session_of(folder, TrainingStage(epochs=30, batch=8, lr=0.05, optimizer="adam", scales=True)), folder)
    assert found.epochs[-1].loss < found.epochs[0].loss / 3 and found.epochs[-1].accuracy is not None
    onnx.save(found.model, folder / "q.onnx")
    head = read_head(folder / "head.json")
    expected = Judge(head, read_annotations(folder / "a.json").of(head.classes)).expected(range(8))
    graph = load_model(folder / "q.onnx").graph
    assert expected.precision(reference.run(graph, {"x": x[:8]})[0]).map_50 == pytest.approx(
        found.epochs[-1].accuracy, abs=0.1) and found.epochs[-1].accuracy > 0.8


def test_an_interrupted_session_goes_on_to_the_same_bytes(folder: Path):
    session = session_of(folder, TrainingStage(epochs=3, batch=8, lr=0.05), mirror=True, zoom=(0.8, 1.25))
    whole = run(session, folder)

    def interrupt(text: str) -> None:
        if "epoch 2" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(session, folder, folder / "kept", interrupt)
    again = run(session, folder, folder / "kept")
    assert again.model.SerializeToString(deterministic=True) == whole.model.SerializeToString(deterministic=True)
    assert [one.loss for one in again.epochs] == [one.loss for one in whole.epochs]


@pytest.mark.parametrize(("change", "message"), [
    ({"shift": 2}, "shift is of classes; zoom is of detectors"), ({"zoom": [1.5, 1]}, "the smallest and the largest"),
    ({"zoom": [0, 1]}, "Expected `float` >= 0.125"),
    ({"stages": [{"epochs": 1, "distill": 0.5}]}, "distill is of classes"),
    ({"head": None, "zoom": [0.5, 1]}, "zoom is of detectors, which have a head"),
    ({"train": {"path": "b.json"}}, "No such file"),
    ({"head": {"kind": "yolo", "classes": ["dark"], "maps": [{"output": "found", "anchors": [[0.2, 0.2]]}]}},
     "no object of the classes dark; it has bright"),
    ({"head": {"kind": "yolo", "classes": ["bright"], "maps": [{"output": "y", "anchors": [[0.2, 0.2]]}]}},
     "the model has no output y, which the head names; it has found"),
    ({"head": {"kind": "decoded", "classes": ["bright"], "boxes": "found", "scores": "found"}, "test": None},
     "a head of the kind decoded cannot be trained"),
    ({"train": {"path": "a.json"}}, "No such file or directory"), ({"mean": [0.5, 0.5]}, "must have 1 or 1 numbers"),
])
def test_wrong_sessions(change: dict[str, Any], message: str, folder: Path, capsys: pytest.CaptureFixture):
    session = {"model": "m.onnx", "train": {"path": "a.json", "images": "pictures"}, "stages": [{"epochs": 1}],
               "test": {"path": "a.json", "images": "pictures"}, "head": json.loads((folder / "head.json").read_text())}
    (folder / "s.json").write_text(json.dumps({**session, **change}))
    assert main(["train", str(folder / "s.json"), "-o", str(folder / "y.onnx")]) == 1
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_a_damaged_picture(folder: Path):
    (folder / "pictures" / "00.png").write_bytes(b"nothing")
    with pytest.raises(TrainError, match="00.png: not an .npz or .npy file, nor an image"):
        run(session_of(folder, TrainingStage(epochs=1)), folder)
