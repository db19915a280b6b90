"""Which prior box answers for which object."""

import numpy as np

from gen.detection.boxes import overlaps

__all__ = ["match"]


def match(priors: np.ndarray, boxes: np.ndarray, least: float) -> np.ndarray:
    """Number of the object that each prior box answers for, -1 for none; corners (p, 4) and (n, 4) -> (p,) int64.

    First each object has the prior that it overlaps most, the largest overlap of all first, and no prior twice; then
    every other prior has the object that it overlaps most, if by ``least`` (Liu and others, SSD, section 2.2).
    """
    found = np.full(len(priors), -1, np.int64)
    if not len(boxes) or not len(priors):
        return found
    shares = overlaps(boxes, priors)
    best = shares.argmax(axis=0)
    near = shares.max(axis=0) >= least
    found[near] = best[near]
    left = shares.copy()
    for _ in range(min(len(boxes), len(priors))):
        number, place = np.unravel_index(left.argmax(), left.shape)
        found[place] = number
        left[number], left[:, place] = -1, -1
    return found
