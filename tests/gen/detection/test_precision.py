"""Mean average precision: values that were calculated by hand, and those that pycocotools itself prints."""

import contextlib
import io

import numpy as np
import pytest

from gen.detection.annotations import Picture
from gen.detection.errors import AnnotationError
from gen.detection.heads.base import Detections
from gen.detection.precision import mean_average_precision

pytest.importorskip("pycocotools", reason="pycocotools is an extra: pip install '.[detection]'")


def picture(*objects: tuple[list[float], int], crowd: bool = False, size: int = 100) -> Picture:
    return Picture("a", size, size, np.array([box for box, _ in objects], float).reshape(-1, 4),
                   np.array([kind for _, kind in objects], np.int64), np.full(len(objects), crowd))


def found(*objects: tuple[list[float], int, float], size: int = 100) -> Detections:
    return Detections(np.array([box for box, *_ in objects], float).reshape(-1, 4) / size,
                      np.array([score for *_, score in objects]), np.array([kind for _, kind, _ in objects], np.int64))


BOX, AWAY = [10.0, 10.0, 30.0, 30.0], [60.0, 60.0, 80.0, 80.0]


@pytest.mark.parametrize(("truth", "answers", "wanted"), [
    ([(BOX, 0)], [(BOX, 0, 0.9)], (1, 1)),
    ([(BOX, 0)], [(AWAY, 0, 0.9)], (0, 0)),
    ([(BOX, 0)], [(BOX, 1, 0.9)], (0, 0)),                                  # class 1 has no object: it does not count
    ([(BOX, 0)], [(AWAY, 0, 0.9), (BOX, 0, 0.8)], (0.5, 0.5)),              # precision 1/2 at every recall
    ([(BOX, 0), (AWAY, 0)], [(BOX, 0, 0.9)], (51 / 101, 51 / 101)),         # precision 1 at 51 of 101 recalls
    ([(BOX, 0), (AWAY, 1)], [(BOX, 0, 0.9)], (0.5, 0.5)),                   # a mean over classes
    ([(BOX, 0)], [([10.0, 10.0, 30.0, 25.0], 0, 0.9)], (1, 0.6)),           # overlap 0.75: right at 0.5, ..., 0.75
    ([(BOX, 0)], [(BOX, 0, 0.9), (BOX, 0, 0.8)], (1, 1)),                   # twice, after all recall is reached
])
def test_by_hand(truth: list, answers: list, wanted: tuple[float, float]):
    precision = mean_average_precision([picture(*truth)], [found(*answers)])
    assert (precision.map_50, precision.map) == pytest.approx(wanted, abs=1e-9)


def test_a_crowd_is_neither_right_nor_wrong():
    pictures = [picture((BOX, 0)), picture((AWAY, 0), crowd=True)]
    assert mean_average_precision(pictures, [found((BOX, 0, 0.5)), found((AWAY, 0, 0.9))]).map == pytest.approx(1)
    assert mean_average_precision(pictures, [found((BOX, 0, 0.5)), found((BOX, 0, 0.9))]).map == pytest.approx(0.5)


def test_only_the_best_count():
    pictures, answers = [picture((BOX, 0))], [found((AWAY, 0, 0.9), (BOX, 0, 0.8))]
    assert mean_average_precision(pictures, answers, most=1).map == 0


def test_it_is_what_pycocotools_prints(rng: np.random.Generator):
    """As its users call it: from dictionaries and a list of results, with the table of `summarize`."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def box() -> list[float]:
        low = rng.uniform(0, 60, 2)
        return [*low, *(low + rng.uniform(5, 40, 2))]

    pictures, answers = [], []
    for _ in range(12):
        objects = [(box(), int(rng.integers(3))) for _ in range(rng.integers(1, 4))]
        near = [([x + rng.normal(0, 2) for x in place], kind if rng.random() < 0.8 else 1, float(rng.random()))
                for place, kind in objects]
        pictures.append(picture(*objects))
        answers.append(found(*near, *((box(), int(rng.integers(3)), float(rng.random())) for _ in range(2))))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        truth = COCO()
        truth.dataset = {
            "images": [{"id": n} for n in range(12)], "categories": [{"id": n} for n in range(3)],
            "annotations": [{"id": 100 * n + k + 1, "image_id": n, "category_id": int(kind), "iscrowd": 0,
                             "bbox": [x, y, right - x, low - y], "area": (right - x) * (low - y)}
                            for n, one in enumerate(pictures)
                            for k, ((x, y, right, low), kind) in enumerate(zip(one.boxes, one.classes, strict=True))]}
        truth.createIndex()
        results = truth.loadRes([
            {"image_id": n, "category_id": int(kind), "score": float(score), "bbox": [x, y, right - x, low - y]}
            for n, one in enumerate(answers)
            for (x, y, right, low), kind, score in zip(100 * one.boxes, one.classes, one.scores, strict=True)])
        judge = COCOeval(truth, results, "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    precision = mean_average_precision(pictures, answers)
    assert [precision.map, precision.map_50] == pytest.approx(judge.stats[:2], abs=1e-12)
    assert 0.05 < precision.map < precision.map_50 < 0.95, printed.getvalue()
    assert str(precision) == (f"mAP {100 * judge.stats[1]:.2f} % at an overlap of 0.5, {100 * judge.stats[0]:.2f} % at "
                              "0.5 to 0.95")


def test_nothing_to_be_found():
    with pytest.raises(AnnotationError, match="the samples have no object, so there is no precision"):
        mean_average_precision([picture()], [found((BOX, 0, 0.5))])
    assert mean_average_precision([picture((BOX, 0))], [found()]).map == 0
