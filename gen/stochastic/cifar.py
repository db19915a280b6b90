"""Photographs of CIFAR-10: archives to learn from and to test on."""

import hashlib
import io
from contextlib import suppress
from pathlib import Path

import numpy as np

from gen.files.photographs import PhotographsError, read_photographs
from gen.files.read import read_file
from gen.files.results import EntryError, read_entry, write_entry
from gen.files.sources import sources_digest

from .errors import DataError
from .images import Images
from .recipe import PHOTOGRAPHS

__all__ = ["CIFAR_FILES", "read_cifar"]

#: Archives to learn from, and to test on.
CIFAR_FILES = ("cifar10_train_jpg_1500_a_class.zip", "cifar10_test_jpg_0000-0099.zip")
#: What the pixels depend on beside the archives.
_SOURCES = ("gen/files/photographs.py", "gen/files/pictures.py", "gen/stochastic/cifar.py")
#: More than for digits, as the networks are deeper.
_IN_RANGE = 0.99


def read_cifar(folder: Path, kept: Path | None) -> Images:
    """All of the first archive to learn from, of the second to test on; one of each class in turn.

    Decoding takes seconds: the pixels are kept in the folder ``kept``, if there is one. Raises DataError for damaged
    files, OSError for missing ones.
    """
    files = hashlib.sha256(b"".join(hashlib.sha256(read_file(folder / name)).digest() for name in CIFAR_FILES))
    files.update(sources_digest(*_SOURCES).encode())
    entry = None if kept is None else kept / f"cifar-{files.hexdigest()[:32]}.kept"
    if entry is not None:
        with suppress(OSError, EntryError):     # not there, or damaged: made again
            with np.load(io.BytesIO(read_entry(entry))) as arrays:
                return _images(arrays["pixels"], arrays["labels"], int(arrays["trained"]))
    try:
        learnt, tested = (_in_turn(*read_photographs(folder / name)) for name in CIFAR_FILES)
    except PhotographsError as error:
        raise DataError.of(error, str(error)) from None
    if learnt[0].shape[1:] != tested[0].shape[1:]:
        raise DataError(f"{folder}: the photographs of {' and '.join(CIFAR_FILES)} are not of one size")
    pixels, labels = (np.concatenate(parts) for parts in zip(learnt, tested, strict=True))
    if entry is not None:
        packed = io.BytesIO()
        np.savez(packed, allow_pickle=False, pixels=pixels, labels=labels, trained=len(learnt[1]))
        with suppress(OSError):     # decoded again the next time
            write_entry(entry, packed.getvalue())
    return _images(pixels, labels, len(learnt[1]))


def _images(pixels: np.ndarray, labels: np.ndarray, trained: int) -> Images:
    return Images("cifar-10", pixels.astype(np.float32) / 255, labels, trained, PHOTOGRAPHS, _IN_RANGE)


def _in_turn(pixels: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of images class by class one of each class in turn, so that every part has all classes."""
    within = np.concatenate([np.arange(count) for count in np.bincount(labels)])
    order = np.lexsort((labels, within))
    return pixels[order], labels[order]
