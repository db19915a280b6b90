"""Pictures with objects in them, to train detectors with."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gen.detection.annotations import Annotations
from gen.detection.errors import AnnotationError
from gen.detection.heads.registry import AnyHead
from gen.detection.judge import Expected
from gen.detection.read import read_annotations
from gen.train.errors import TrainError
from gen.train.images import read_images, scaling
from gen.train.session import Data, TrainingSession

__all__ = ["Pictures", "read_pictures"]

#: Bytes of pixels that are held.
_MAX_BYTES = 1 << 32


@dataclass(frozen=True, eq=False)
class Pictures:
    """``pixels``: (N, C, H, W) uint8; ``objects``: (n, 6) float32, rows as `gen.detection.heads.base.Head.loss` takes
    them, without crowds; ``mean``, ``std``: (C, 1, 1) float32, of pixels 0..1.
    """

    pixels: np.ndarray
    objects: np.ndarray
    expected: Expected
    mean: np.ndarray
    std: np.ndarray

    def __len__(self) -> int:
        return len(self.pixels)

    def first(self, count: int) -> np.ndarray:
        return self.inputs(self.pixels[:count])

    def inputs(self, pixels: np.ndarray) -> np.ndarray:
        """float32, as the model takes them."""
        found: np.ndarray = (pixels / np.float32(255) - self.mean) / self.std
        return found

    def content(self) -> Iterator[bytes]:
        yield self.pixels.tobytes()
        yield self.objects.tobytes()


def read_pictures(data: Data, session: TrainingSession, head: AnyHead, folder: Path, *,
                  shape: tuple[int, ...]) -> Pictures:
    """The annotated pictures that ``data`` names, relative to ``folder``, scaled to ``shape`` (C, H, W).

    Raises TrainError or AnnotationError, which name the file, OSError.
    """
    path = folder / data.path
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise TrainError(f"{path}: the model's input of shape {shape} is no image")
    channels, height, width = shape
    mean, std = scaling(session, channels)
    images = None if data.images is None else folder / data.images
    annotations = read_annotations(path, images).of(head.classes).part(data.first, data.count)
    if not len(annotations):
        raise AnnotationError(f"{path}: there are no pictures from {data.first} on")
    if len(annotations) * channels * height * width > _MAX_BYTES:
        raise TrainError(f"{path}: {len(annotations):,} pictures; at most {_MAX_BYTES:,} bytes are held, take fewer")
    pixels = read_images([annotations.images / picture.name for picture in annotations.pictures], shape, np.uint8)
    return Pictures(pixels, _objects(annotations), Expected(head, annotations.pictures), mean, std)


def _objects(annotations: Annotations) -> np.ndarray:
    rows = [np.zeros((0, 6))]
    for number, picture in enumerate(annotations.pictures):
        sides = np.array([picture.width, picture.height] * 2)
        boxes = np.clip(picture.boxes[~picture.crowd] / sides, 0, 1)
        size = boxes[:, 2:] - boxes[:, :2]
        there = (size > 0).all(axis=1)
        classes = picture.classes[~picture.crowd][there]
        rows.append(np.column_stack([np.full(len(classes), number), classes, (boxes[:, :2] + size / 2)[there],
                                     size[there]]))
    return np.concatenate(rows).astype(np.float32)
