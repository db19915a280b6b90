"""What is in pictures, and where: one record for all forms of files."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np

from gen.detection.errors import AnnotationError

__all__ = ["MOST_SIDE", "Annotations", "Key", "Picture", "checked_name"]

#: A sample: the name of its image, or its number in a file of arrays.
Key = str | int

#: Pixels of a side of a picture.
MOST_SIDE = 1 << 16
#: A box may stick out of its picture by so many pixels, which rounding explains.
_BEYOND = 2.0


@dataclass(frozen=True, eq=False)
class Picture:
    """``boxes``: (n, 4) float64, corners in its pixels; ``classes``: (n,) int64, numbers of names; ``crowd``: (n,)
    whether a box stands for several objects, or for one that need not be found.
    """

    name: str
    width: int
    height: int
    boxes: np.ndarray
    classes: np.ndarray
    crowd: np.ndarray

    def __post_init__(self) -> None:
        """Raises AnnotationError, which names the picture alone."""
        if not (1 <= self.width <= MOST_SIDE and 1 <= self.height <= MOST_SIDE):
            raise AnnotationError(f"picture {self.name}: sides are 1 to {MOST_SIDE:,} pixels, not {self.width} x "
                                  f"{self.height}")
        if not np.isfinite(self.boxes).all():
            raise AnnotationError(f"picture {self.name}: a box with numbers that are not finite")
        low, high = self.boxes[:, :2], self.boxes[:, 2:]
        sizes = np.array([self.width, self.height])
        wrong = (low > high) | (low < -_BEYOND) | (high > sizes + _BEYOND)
        if wrong.any():
            place = int(wrong.any(axis=1).argmax())
            raise AnnotationError(f"picture {self.name}: box {', '.join(f'{x:g}' for x in self.boxes[place])} (left, "
                                  f"top, right, bottom) is not within {self.width} x {self.height} pixels")


@dataclass(frozen=True, eq=False)
class Annotations:
    """Of the file or folder ``path``, whose images are in the folder ``images``; ``names``: of the classes.

    ``left_out``: objects of classes that were not asked for.
    """

    path: Path
    images: Path
    names: tuple[str, ...]
    pictures: tuple[Picture, ...]
    left_out: int = 0

    def __post_init__(self) -> None:
        """Raises AnnotationError for two pictures, or classes, of one name."""
        for what, names in (("pictures", [picture.name for picture in self.pictures]), ("classes", self.names)):
            if twice := [name for name, count in Counter(names).items() if count > 1]:
                raise AnnotationError(f"{self.path}: two {what} are called {twice[0]}")

    def __len__(self) -> int:
        return len(self.pictures)

    def of(self, names: Sequence[str]) -> "Annotations":
        """With these classes in this order; objects of others are left out.

        Raises AnnotationError where no object is left.
        """
        numbers = np.array([names.index(name) if name in names else -1 for name in self.names], np.int64)
        pictures = []
        for picture in self.pictures:
            classes = numbers[picture.classes]
            there = classes >= 0
            pictures.append(replace(picture, boxes=picture.boxes[there], classes=classes[there],
                                    crowd=picture.crowd[there]))
        before, after = (sum(len(picture.classes) for picture in some) for some in (self.pictures, pictures))
        if not after:
            raise AnnotationError(f"{self.path}: no object of the classes {', '.join(names)}; it has "
                                  f"{', '.join(self.names[:8]) or 'none'}{', ...' * (len(self.names) > 8)}")
        return replace(self, names=tuple(names), pictures=tuple(pictures), left_out=before - after)

    def part(self, first: int, count: int | None) -> "Annotations":
        """The pictures from number ``first`` on, so many or all."""
        return replace(self, pictures=self.pictures[first:None if count is None else first + count])

    @cached_property
    def _by_name(self) -> Mapping[str, Picture]:
        found = {PurePosixPath(picture.name).name: picture for picture in self.pictures}
        return {**found, **{picture.name: picture for picture in self.pictures}}

    def picture(self, key: Key) -> Picture:
        """That of a sample. Raises AnnotationError for one that there is not."""
        if isinstance(key, str):
            if key not in self._by_name:
                raise AnnotationError(f"{self.path}: no picture is called {key}", code="no-annotation")
            return self._by_name[key]
        if not 0 <= key < len(self.pictures):
            raise AnnotationError(f"{self.path}: has {len(self.pictures):,} pictures, and none for sample {key}; "
                                  "arrays must be in their order", code="no-annotation")
        return self.pictures[key]


def checked_name(name: str) -> str:
    """The name of an image's file. Raises AnnotationError for one that leads out of the folder of images."""
    path = PurePosixPath(name.replace("\\", "/"))
    if not path.name or path.is_absolute() or ".." in path.parts or "\0" in name or len(name) > 1000:
        raise AnnotationError(f"{name[:80]!r} is no name of a file in the folder of images")
    return str(path)
