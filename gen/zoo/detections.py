"""The outputs of a detector: boxes, their scores, and which of them are chosen."""

import numpy as np

from gen.zoo.builder import Builder, Tensor, floats

__all__ = ["detections"]

#: NonMaxSuppression: boxes of a class, overlap from which one of two goes, least score: a low one, as nothing has been
#: learnt.
_SELECTED, _OVERLAP, _SCORE = 100, 0.45, 0.1


def detections(b: Builder, boxes: Tensor, scores: Tensor) -> None:
    """Corners (N, boxes, 4), scores (N, classes, boxes), and rows (sample, class, box) of the best that do not overlap.
    """
    limits = np.array([_SELECTED]), floats([_OVERLAP]), floats([_SCORE])
    b.output(boxes)
    b.output(scores)
    b.output(b.node("NonMaxSuppression", boxes, scores, *limits, name="selected"), samples=False)
