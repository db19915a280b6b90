"""What outputs stand for, against boxes that were calculated by hand, and what is chosen of them."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gen.detection.boxes import corners, distinct, overlaps
from gen.detection.errors import HeadError
from gen.detection.heads.decoded import DecodedHead
from gen.detection.heads.registry import AnyHead, read_head
from gen.detection.heads.ssd import SsdHead, SsdMap
from gen.detection.heads.yolo import YoloHead, YoloMap
from gen.detection.matching import match

YOLO = YoloHead(classes=("cat", "dog"), maps=(YoloMap(output="large", anchors=((0.5, 0.25),)),
                                              YoloMap(output="small", anchors=((0.1, 0.1), (0.2, 0.2)))))
SSD = SsdHead(classes=("cat", "dog"), maps=(SsdMap(boxes="b", scores="s", sizes=((0.5, 0.5), (0.2, 0.4))),))


def logit(share: float) -> float:
    return float(np.log(share / (1 - share)))


def test_overlaps():
    boxes = np.array([[0, 0, 2, 2], [1, 0, 3, 2], [5, 5, 6, 6], [3, 3, 3, 3]], float)
    np.testing.assert_allclose(overlaps(boxes[:1], boxes), [[1, 2 / 6, 0, 0]])
    assert not overlaps(boxes[3:], boxes[3:]).any()
    np.testing.assert_array_equal(corners(np.array([[1, 2, 2, 4]])), [[0, 0, 2, 4]])


def test_the_best_of_those_that_overlap():
    boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 8.5], [20, 0, 30, 10], [0, 0, 10, 10]], float)
    kinds = np.array([0, 0, 1, 0, 1])
    assert distinct(boxes, kinds, 0.8).tolist() == [0, 2, 3]
    assert distinct(boxes, kinds, 0.95).tolist() == [0, 1, 2, 3, 4]
    # What has gone takes no other with it: 0 and 2 overlap by less than half.
    assert distinct(np.array([[0, 0, 10, 1], [3, 0, 13, 1], [6, 0, 16, 1.0]]), np.zeros(3), 0.5).tolist() == [0, 2]


def test_yolo():
    """The second anchor of the cell at row 1, column 2 of a 4 x 4 map."""
    small = np.full((14, 4, 4), -20, np.float32)
    small[7:, 1, 2] = [logit(0.25), logit(0.75), np.log(1.5), np.log(0.5), logit(0.8), logit(0.5), logit(0.9)]
    outputs = {"large": np.full((7, 2, 2), -20, np.float32), "small": small}
    found = YOLO.detect(outputs)
    centre, half = np.array([2.25 / 4, 1.75 / 4]), np.array([0.15, 0.05])
    np.testing.assert_allclose(found.boxes, [np.concatenate([centre - half, centre + half])] * 2, rtol=1e-5)
    np.testing.assert_allclose(found.scores, [0.72, 0.4], rtol=1e-5)
    assert found.classes.tolist() == [1, 0]
    assert len(msgspec.structs.replace(YOLO, most=1).detect(outputs).scores) == 1
    assert len(msgspec.structs.replace(YOLO, least=0.5).detect(outputs).scores) == 1


def test_numbers_without_bounds():
    small, large = np.full((14, 4, 4), 3e38, np.float32), np.full((7, 2, 2), -3e38, np.float32)
    with np.errstate(all="raise", under="ignore"):
        assert np.isfinite(YOLO.detect({"large": large, "small": small}).boxes).all()


def test_ssd():
    """The second prior box of the place at row 0, column 1 of a map of 1 x 2."""
    boxes, scores = np.zeros((8, 1, 2), np.float32), np.zeros((6, 1, 2), np.float32)
    scores[[0, 3]] = 20         # background
    scores[3:, 0, 1] = np.log([0.1, 0.3, 0.6])
    boxes[4:, 0, 1] = [1, -2, np.log(2) / 0.2, np.log(0.5) / 0.2]
    found = SSD.detect({"b": boxes, "s": scores})
    centre, half = np.array([0.75 + 0.1 * 0.2, 0.5 - 0.2 * 0.4]), np.array([0.2, 0.1])
    np.testing.assert_allclose(found.boxes, [np.concatenate([centre - half, centre + half])] * 2, rtol=1e-5)
    np.testing.assert_allclose(found.scores, [0.6, 0.3], rtol=1e-5)
    assert found.classes.tolist() == [1, 0]


def test_decoded():
    head = DecodedHead(classes=("cat", "dog"), boxes="b", scores="s", selected="n", size=(50, 100))
    boxes = np.float32([[0, 0, 100, 50], [10, 10, 20, 20], [0, 0, 100, 49]])
    scores = np.float32([[0.9, 0.1, 0.8], [0.001, 0.2, 0.3]])
    rows = np.array([[0, 0, 1], [0, 1, 2]])
    found = head.detect({"b": boxes, "s": scores, "n": rows})
    np.testing.assert_allclose(found.boxes, [[0, 0, 1, 0.98], [0.1, 0.2, 0.2, 0.4]])
    assert found.classes.tolist() == [1, 0] and found.scores.tolist() == [np.float32(0.3), np.float32(0.1)]
    # Where rows are not at hand, boxes are chosen here.
    own = head.detect({"b": boxes, "s": scores})
    assert own.classes.tolist() == [0, 1, 1, 0] and not len(head.detect({"b": boxes, "s": scores, "n": rows[:0]}).boxes)
    for bad in ([[0, 2, 1]], [[0, 0, 3]], [[0, -1, 0]]):
        with pytest.raises(HeadError, match="boxes or classes that there are not"):
            head.detect({"b": boxes, "s": scores, "n": np.array(bad)})


@pytest.mark.parametrize(("head", "outputs", "message"), [
    (YOLO, {"small": np.zeros((14, 2, 2))}, "the model has no output large, which the head names; it has small"),
    (YOLO, {"large": np.zeros((8, 2, 2))}, r"output large must have the shape \(7, any, any\) .*, not \(8, 2, 2\)"),
    (SSD, {"b": np.zeros((8, 1, 2)), "s": np.zeros((6, 1, 3))}, r"output s must have the shape \(6, 1, 2\)"),
])
def test_other_models(head: AnyHead, outputs: dict[str, np.ndarray], message: str):
    with pytest.raises(HeadError, match=message):
        head.detect(outputs)


def test_files(tmp_path: Path):
    path = tmp_path / "head.json"
    path.write_bytes(msgspec.json.encode(YOLO))
    assert json.loads(path.read_text())["kind"] == "yolo" and read_head(path) == YOLO
    path.write_bytes(b'{"model": "m.onnx", "head": ' + msgspec.json.encode(SSD) + b"}")
    assert read_head(path) == SSD
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "ssd.json").write_bytes(msgspec.json.encode(SSD))
    path.write_text('{"model": "m.onnx", "head": "a/ssd.json"}')
    assert read_head(path) == SSD


@pytest.mark.parametrize(("content", "message"), [
    ("{}", "missing required field `kind`"), ('{"kind": "rcnn"}', "Invalid value 'rcnn'"),
    ('{"kind": "yolo", "classes": [], "maps": []}', "length >= 1"),
    ('{"kind": "yolo", "classes": ["a"], "maps": [{"output": "o", "anchors": [[23, 27]]}]}', "Expected `float` <= 16"),
    ('{"kind": "yolo", "classes": ["a"], "maps": [{"output": "o", "anchor": [[1, 1]]}]}', "unknown field `anchor`"),
    ('{"kind": "decoded", "classes": ["a", "a"], "boxes": "b", "scores": "s"}', "two classes have one name"),
    ("[1]", "Expected `object`"), ('{"head": "head.json"}', "missing required field `kind`"),
])
def test_wrong_files(content: str, message: str, tmp_path: Path):
    path = tmp_path / "head.json"
    path.write_text(content)
    with pytest.raises(HeadError) as error:
        read_head(path)
    assert str(error.value).startswith(f"{path}: ") and message in str(error.value)


def test_which_prior_answers_for_which_object():
    """Both objects overlap prior 0 most; it answers for the one that it overlaps more, and the other has the next."""
    priors = np.array([[0, 0, 10, 10], [0, 0, 10, 6], [20, 20, 30, 30], [0, 1, 10, 10], [50, 50, 60, 60]], float)
    boxes = np.array([[0, 0, 10, 9], [0, 0, 10, 10]], float)
    assert match(priors, boxes, 0.75).tolist() == [1, -1, -1, 0, -1]
    assert match(priors, boxes, 0.5).tolist() == [1, 0, -1, 0, -1]
    assert match(priors[:1], boxes, 0.5).tolist() == [1]        # fewer priors than objects
    assert match(priors, boxes[:0], 0.5).tolist() == [-1] * 5
