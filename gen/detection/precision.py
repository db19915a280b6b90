"""Mean average precision, by pycocotools (an extra)."""

import contextlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from gen.detection.annotations import Picture
from gen.detection.errors import AnnotationError
from gen.detection.heads.base import Detections

__all__ = ["Precision", "mean_average_precision", "require_pycocotools"]


@dataclass(frozen=True)
class Precision:
    """Shares 0..1, means over the classes: ``map_50`` of boxes that overlap their object by half; ``map`` the mean of
    ten overlaps from 0.5 to 0.95, as COCO has it.
    """

    map_50: float
    map: float

    def __str__(self) -> str:
        return f"mAP {100 * self.map_50:.2f} % at an overlap of 0.5, {100 * self.map:.2f} % at 0.5 to 0.95"


def require_pycocotools() -> None:
    """To be asked before the work that ends with a precision. Raises AnnotationError."""
    if find_spec("pycocotools") is None:
        raise AnnotationError("mean average precision needs pycocotools: pip install 'npugen[detection]'",
                              code="missing-package")


def mean_average_precision(pictures: Sequence[Picture], found: Sequence[Detections], *, most: int = 100) -> Precision:
    """Of what is found in each of the ``pictures``, the best ``most`` in each; classes without an object do not count.

    Raises AnnotationError if there is no object at all, or no pycocotools.
    """
    require_pycocotools()
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    if not any((~picture.crowd).any() for picture in pictures):
        raise AnnotationError("the samples have no object, so there is no precision")
    with contextlib.redirect_stdout(io.StringIO()):     # it says how far it is
        truth, answers = COCO(), COCO()
        names = sorted({int(number) for picture in pictures for number in picture.classes}
                       | {int(number) for one in found for number in one.classes})
        shared = {"images": [{"id": number} for number in range(len(pictures))],
                  "categories": [{"id": number} for number in names]}
        truth.dataset = {**shared, "annotations": _numbered(
            {"image_id": number, "category_id": int(kind), "iscrowd": int(crowd), **_box(box)}
            for number, picture in enumerate(pictures)
            for box, kind, crowd in zip(picture.boxes, picture.classes, picture.crowd, strict=True))}
        answers.dataset = {**shared, "annotations": _numbered(
            {"image_id": number, "category_id": int(kind), "iscrowd": 0, "score": float(score), **_box(box)}
            for number, (picture, one) in enumerate(zip(pictures, found, strict=True))
            for box, kind, score in zip(one.boxes * ([picture.width, picture.height] * 2), one.classes, one.scores,
                                        strict=True))}
        truth.createIndex()
        answers.createIndex()
        judge = COCOeval(truth, answers, "bbox")
        judge.params.maxDets, judge.params.areaRng, judge.params.areaRngLbl = [most], [[0, 1e10]], ["all"]
        judge.evaluate()
        judge.accumulate()
    # (overlaps, recalls, classes, areas, most); -1 for a class without an object.
    precision = judge.eval["precision"]
    return Precision(*(float(part[part > -1].mean()) for part in (precision[0], precision)))


def _numbered(rows: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
    """Its numbers begin at 1: it takes 0 for nothing."""
    return [{"id": number, **row} for number, row in enumerate(rows, start=1)]


def _box(box: np.ndarray) -> dict[str, object]:
    left, top, right, bottom = map(float, box)
    width, height = right - left, bottom - top
    return {"bbox": [left, top, width, height], "area": width * height}
