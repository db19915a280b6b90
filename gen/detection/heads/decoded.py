"""Models that decode their boxes themselves, and may choose among them, too."""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from msgspec import Meta

from gen.detection.errors import HeadError
from gen.detection.heads.base import Detections, Head, Name

__all__ = ["DecodedHead"]

_Side = Annotated[int, Meta(ge=1, le=1 << 16)]


class DecodedHead(Head, kw_only=True, frozen=True, tag="decoded"):
    """Outputs ``boxes`` (n, 4), corners, and ``scores`` (classes, n), as the zoo's detectors have them; ``selected``,
    if the model chooses: NonMaxSuppression's rows (sample, class, box). Where that is not at hand, among float outputs
    alone, boxes are chosen here.

    ``size``: (height, width) of the model's input, if boxes are in its pixels, and not shares of it.
    """

    boxes: Name
    scores: Name
    selected: Name | None = None
    size: tuple[_Side, _Side] | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.boxes, self.scores, *([] if self.selected is None else [self.selected]))

    def candidates(self, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        boxes = self.value(values, self.boxes, (None, 4))
        scores = self.value(values, self.scores, (len(self.classes), len(boxes))).T
        return (boxes if self.size is None else boxes / np.array(self.size[::-1] * 2, np.float32)), scores

    def detect(self, values: Mapping[str, np.ndarray]) -> Detections:
        if self.selected is None or self.selected not in values:
            return super().detect(values)
        boxes, scores = self.candidates(values)
        rows = values[self.selected].reshape(-1, 3).astype(np.int64)
        classes, places = rows[:, 1], rows[:, 2]
        if len(rows) and not (0 <= classes.min() <= classes.max() < len(self.classes)
                              and 0 <= places.min() <= places.max() < len(boxes)):
            raise HeadError(f"output {self.selected} chooses boxes or classes that there are not")
        found = scores[places, classes]
        order = np.argsort(-found, kind="stable")[:self.most]
        return Detections(boxes[places[order]], found[order], classes[order])
