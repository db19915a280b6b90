"""Labelled images that networks learn, split into those to learn from and those to be tested on."""

import gzip
import hashlib
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from gen.files.read import read_file

from .backbone import Backbone
from .errors import BackboneError, DataError
from .recipe import DIGITS, Recipe

__all__ = ["Images", "MNIST_FILES", "read_mnist"]

#: Names of the files of MNIST's test set, as they are published.
MNIST_FILES = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
_SIDE = 28
_TRAINED = 8000
_IN_RANGE = 0.97
#: Heads of the files: a number that says what they are, a count, for images rows and columns too.
_HEADS = (16, 8)


@dataclass(frozen=True, eq=False)
class Images:
    """``pixels`` (n, height, width, channels) float32 from 0 to 1, ``labels`` (n,); the first ``trained`` to learn.

    ``name`` is for people; ``recipe``: how networks learn from them. ``in_range``: share of a layer's results that is
    in the range of its int8: a wider one would leave most streams nearly empty, a narrower one clips in every layer.
    """

    name: str
    pixels: np.ndarray
    labels: np.ndarray
    trained: int
    recipe: Recipe
    in_range: float

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all pixels and labels, 64 hexadecimal digits."""
        state = hashlib.sha256(repr((self.pixels.shape, self.pixels.dtype, self.labels.dtype)).encode())
        for values in (self.pixels, self.labels):
            state.update(np.ascontiguousarray(values).data)
        return state.hexdigest()

    @property
    def classes(self) -> int:
        return int(self.labels.max()) + 1

    def for_backbone(self, backbone: Backbone, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """Pixels as the backbone's input, and labels. Raises BackboneError for another size, or too few classes."""
        shape = backbone.input
        height, width, channels = self.pixels.shape[1:]
        if shape.size != height * width * channels or (shape.height > 1 and (shape.height, shape.width) != (height,
                                                                                                         width)):
            raise BackboneError(f"{backbone.word}: the images are {height}x{width}x{channels}")
        if backbone.classes < self.classes:
            raise BackboneError(f"{backbone.word}: there are {self.classes} classes")
        return self.pixels[part].reshape(-1, shape.height, shape.width, shape.channels), self.labels[part]

    @property
    def learnt(self) -> slice:
        return slice(0, self.trained)

    def tested(self, count: int | None = None) -> slice:
        """Those that nothing was learnt from, or the first ``count`` of them."""
        return slice(self.trained, None if count is None else self.trained + count)


def read_mnist(folder: Path, trained: int = _TRAINED) -> Images:
    """MNIST's test images. Raises DataError for damaged files, OSError for missing ones."""
    contents = [_unpacked(folder / name) for name in MNIST_FILES]
    images, labels = (np.frombuffer(content, np.uint8, offset=min(head, len(content)))
                      for content, head in zip(contents, _HEADS, strict=True))
    if not len(labels) or len(images) != len(labels) * _SIDE * _SIDE:
        raise DataError(f"{folder}: {' and '.join(MNIST_FILES)} do not belong together")
    if len(labels) <= trained:
        raise DataError(f"{folder / MNIST_FILES[0]}: {len(labels):,} images, where more than {trained:,} are needed")
    pixels = images.reshape(-1, _SIDE, _SIDE, 1).astype(np.float32) / 255
    return Images("mnist", pixels, labels.astype(np.int64), trained, DIGITS, _IN_RANGE)


def _unpacked(path: Path) -> bytes:
    try:
        return gzip.decompress(read_file(path))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: damaged: {error}") from None
