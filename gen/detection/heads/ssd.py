"""Heads as SSD has them (Liu and others, 2016): prior boxes at each place of several maps."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np
from msgspec import Meta

from gen.detection.boxes import corners
from gen.detection.heads.base import Head, Name, Size
from gen.detection.priors import VARIANCES, priors

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SsdHead", "SsdMap"]

#: Of the logarithm of a box's size over its prior one's: beyond, it is no box of a picture.
_BOUNDS = -80, 12


class SsdMap(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Two outputs: ``boxes`` (priors * 4, H, W), of each prior box what its centre and size are changed by, and
    ``scores`` (priors * (1 + classes), H, W), the first one of the background. ``sizes``: of the prior boxes.
    """

    boxes: Name
    scores: Name
    sizes: Annotated[tuple[Size, ...], Meta(min_length=1, max_length=100)]


class SsdHead(Head, kw_only=True, frozen=True, tag="ssd"):
    """Scores are logits, of which a Softmax makes chances.

    ``matched``: a prior box answers for the object that it overlaps most, if by so much; each object has one at least.
    ``negatives``: of the priors without an object the worst count, so many for each one with one.
    """

    maps: Annotated[tuple[SsdMap, ...], Meta(min_length=1, max_length=100)]
    matched: Annotated[float, Meta(gt=0, le=1)] = 0.5
    negatives: Annotated[float, Meta(gt=0, le=1000)] = 3.0

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(name for one in self.maps for name in (one.boxes, one.scores))

    def candidates(self, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        boxes, scores = [], []
        for one in self.maps:
            count, numbers = len(one.sizes), 1 + len(self.classes)
            offsets = self.value(values, one.boxes, (4 * count, None, None))
            _, height, width = offsets.shape
            logits = self.value(values, one.scores, (numbers * count, height, width))
            offsets = offsets.reshape(count, 4, height, width).transpose(2, 3, 0, 1).reshape(-1, 4)
            logits = logits.reshape(count, numbers, height, width).transpose(2, 3, 0, 1).reshape(-1, numbers)
            places = priors(one.sizes, height, width)
            centre = places[:, :2] + VARIANCES[0] * offsets[:, :2] * places[:, 2:]
            size = places[:, 2:] * np.exp(np.clip(VARIANCES[1] * offsets[:, 2:], *_BOUNDS))
            boxes.append(corners(np.concatenate([centre, size], axis=-1)))
            chances = np.exp(logits - logits.max(axis=1, keepdims=True))
            scores.append((chances / chances.sum(axis=1, keepdims=True))[:, 1:])
        return np.concatenate(boxes), np.concatenate(scores)

    def loss(self, found: "Sequence[Tensor]", objects: "Tensor") -> "Tensor":
        from gen.detection.losses.ssd import ssd_loss

        return ssd_loss(dict(zip(self.outputs, found, strict=True)), objects, sizes=[one.sizes for one in self.maps],
                        classes=len(self.classes), matched=self.matched, negatives=self.negatives)

