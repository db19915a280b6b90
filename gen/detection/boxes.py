"""Boxes as arrays (..., 4): corners (x1, y1, x2, y2), or centres and sizes (x, y, width, height)."""

import numpy as np

__all__ = ["corners", "distinct", "overlaps"]


def corners(boxes: np.ndarray) -> np.ndarray:
    """Of centres and sizes."""
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    return np.concatenate([centre - half, centre + half], axis=-1)


def overlaps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(n, m): what two boxes have in common over what they have together, of corners (n, 4) and (m, 4)."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    common = np.prod(np.clip(high - low, 0, None), axis=-1)
    areas = [np.prod(np.clip(boxes[:, 2:] - boxes[:, :2], 0, None), axis=-1) for boxes in (a, b)]
    both = areas[0][:, None] + areas[1][None] - common
    return np.where(both > 0, common / np.where(both > 0, both, 1), 0)


def distinct(boxes: np.ndarray, kinds: np.ndarray, most: float) -> np.ndarray:
    """Numbers of the boxes that stay (non-maximum suppression): corners (n, 4), the best first, of ``kinds`` (n,).

    A box goes if it overlaps one of its kind that stays by more than ``most``.
    """
    near = (overlaps(boxes, boxes) > most) & (kinds[:, None] == kinds[None])
    stays = np.ones(len(boxes), bool)
    for place in range(len(boxes)):
        if stays[place]:
            stays[place + 1:] &= ~near[place, place + 1:]
    return np.flatnonzero(stays)
