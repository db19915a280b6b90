"""Data sets with labels, from arrays or from folders of images."""

import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from gen.files.read import open_file
from gen.run.arrays import ArrayFile
from gen.run.inputs import labelled_images
from gen.train.errors import TrainError
from gen.train.images import read_images, scaling
from gen.train.session import Data, TrainingSession
from npudriver.archive import BAD_ARCHIVE, described

__all__ = ["Dataset", "TrainingData", "read_dataset"]

_LABEL = "label"
#: Bytes of a data set, unpacked.
_MAX_BYTES = 1 << 32


class TrainingData(Protocol):
    """Samples, and what is wanted of each."""

    def __len__(self) -> int: ...

    def first(self, count: int) -> np.ndarray:
        """Inputs (count, ...) float32, as the model takes them."""

    def content(self) -> Iterator[bytes]:
        """All of it, to be told from other data by."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """``inputs``: (N, ...) float32; ``labels``: (N,) int64."""

    inputs: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int) -> np.ndarray:
        return self.inputs[:count]

    def content(self) -> Iterator[bytes]:
        yield self.inputs.tobytes()
        yield self.labels.tobytes()


def read_dataset(data: Data, session: TrainingSession, folder: Path, *, name: str, shape: tuple[int, ...]) -> Dataset:
    """The samples that ``data`` names, relative to ``folder``, for the model input ``name`` of ``shape`` (a sample's).

    Raises TrainError, OSError; each names the file.
    """
    path = folder / data.path
    part = slice(data.first, None if data.count is None else data.first + data.count)
    try:
        if path.is_dir():
            found = _images(path, part, session, shape)
        elif path.suffix == ".npz":
            found = _arrays(path, part, name, shape)
        else:
            with _unpacked(path) as images:
                found = _images(images, part, session, shape)
    except BAD_ARCHIVE as error:
        if isinstance(error, OSError) and error.filename:
            raise
        reason = str(error) if isinstance(error, TrainError) else f"damaged ({described(error)})"
        raise TrainError(f"{path}: {reason}") from None
    if not len(found):
        raise TrainError(f"{path}: there are no samples from {data.first} on")
    return found


def _arrays(path: Path, part: slice, name: str, shape: tuple[int, ...]) -> Dataset:
    file = ArrayFile(path)
    for wanted in (name, _LABEL):
        if wanted not in (file.names or ()):
            raise TrainError(f"has no array {wanted!r}, which training needs; it has {', '.join(file.names or ())}")
    inputs, labels = file.read(name, part.stop)[part], file.read(_LABEL, part.stop)[part]
    if inputs.shape[1:] != shape or inputs.dtype.kind != "f":
        raise TrainError(f"array {name!r} must be float of shape (samples, {', '.join(map(str, shape))}), not "
                         f"{inputs.dtype} {inputs.shape}")
    if labels.shape != (len(inputs),) or labels.dtype.kind not in "iu":
        raise TrainError(f"array {_LABEL!r} must have a whole number for each of {len(inputs)} samples, not "
                         f"{labels.dtype} {labels.shape}")
    return Dataset(inputs.astype(np.float32, copy=False), labels.astype(np.int64))


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    with open_file(path) as file, zipfile.ZipFile(file) as archive, tempfile.TemporaryDirectory() as folder:
        size = sum(info.file_size for info in archive.infolist())
        if size > _MAX_BYTES:
            raise TrainError(f"unpacked it has {size:,} bytes; at most {_MAX_BYTES:,} are read")
        archive.extractall(folder)
        yield Path(folder)


def _images(folder: Path, part: slice, session: TrainingSession, shape: tuple[int, ...]) -> Dataset:
    """A part of the images, class by class in turn, so that every part has all classes."""
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise TrainError(f"the model's input of shape {shape} is no image; give an .npz file")
    labelled = labelled_images(folder)
    if len({label for _, label in labelled}) < 2:
        raise TrainError("needs a folder of images for each class")
    chosen = labelled[part]
    pixels = read_images([image for image, _ in chosen], shape, np.float32,
                         title=lambda image: f"{image.parent.name}/{image.name}")
    mean, std = scaling(session, shape[0])
    return Dataset((pixels / np.float32(255) - mean) / std, np.array([label for _, label in chosen], np.int64))
