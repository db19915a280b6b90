"""Heads as YOLOv3 has them (Redmon and Farhadi, 2018)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np
from msgspec import Meta

from gen.detection.boxes import corners
from gen.detection.heads.base import Head, Name, Size
from gen.detection.priors import grid

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["YoloHead", "YoloMap"]


class YoloMap(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """An output (anchors * (5 + classes), H, W): of each anchor x, y, width, height, whether there is anything, and the
    classes. ``anchors``: as shares of the picture, so 23 x 27 pixels of 416 are 0.0553, 0.0649.
    """

    output: Name
    anchors: Annotated[tuple[Size, ...], Meta(min_length=1, max_length=100)]


class YoloHead(Head, kw_only=True, frozen=True, tag="yolo"):
    """Numbers are logits: a box's centre is its cell's corner and the sigmoid of x and y, its size the anchor's times
    exp(width) and exp(height), its score the sigmoid of whether there is anything, times that of the class.

    ``ignore``: what overlaps an object by more, and is not to answer for it, is not taught that there is nothing.
    """

    maps: Annotated[tuple[YoloMap, ...], Meta(min_length=1, max_length=100)]
    ignore: Annotated[float, Meta(ge=0, le=1)] = 0.5

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(one.output for one in self.maps)

    def candidates(self, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        boxes, scores = [], []
        for one in self.maps:
            numbers = 5 + len(self.classes)
            found = self.value(values, one.output, (len(one.anchors) * numbers, None, None))
            _, height, width = found.shape
            # (H, W, anchors, numbers)
            found = found.reshape(len(one.anchors), numbers, height, width).transpose(2, 3, 0, 1)
            cells = np.array([width, height], np.float32)
            centre = (_sigmoid(found[..., :2]) + grid(height, width)[:, :, None]) / cells
            size = np.exp(np.clip(found[..., 2:4], *_BOUNDS)) * np.array(one.anchors, np.float32)
            boxes.append(corners(np.concatenate([centre, size], axis=-1)).reshape(-1, 4))
            scores.append((_sigmoid(found[..., 4:5]) * _sigmoid(found[..., 5:])).reshape(-1, len(self.classes)))
        return np.concatenate(boxes), np.concatenate(scores)

    def loss(self, found: "Sequence[Tensor]", objects: "Tensor") -> "Tensor":
        from gen.detection.losses.yolo import yolo_loss

        anchors = [one.anchors for one in self.maps]
        return yolo_loss(dict(zip(self.outputs, found, strict=True)), objects, anchors=anchors,
                         classes=len(self.classes), ignore=self.ignore)


#: Of the logarithm of a box's size over its anchor's: beyond, it is no box of a picture.
_BOUNDS = -80, 12


def _sigmoid(x: np.ndarray) -> np.ndarray:
    found: np.ndarray = 1 / (1 + np.exp(-np.clip(x, -80, 80)))
    return found
