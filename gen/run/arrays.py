"""Arrays from .npy and .npz files: what a header asks for is looked at before it takes memory."""

import math
import os
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from gen.files.read import open_file
from npudriver.archive import open_member

__all__ = ["ArrayError", "ArrayFile", "Header"]

_NPY_MAGIC = b"\x93NUMPY"
#: Of an .npz file, and of one without arrays.
_ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_SUFFIX = ".npy"
#: Bytes that are read at once.
_CHUNK = 1 << 20


class ArrayError(ValueError):
    """What is no array, or a damaged one; an InputError says in which file."""


@dataclass(frozen=True)
class Header:
    """What an array's header says; ``fortran``: its first axis moves fastest."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool

    def first(self, count: int | None) -> tuple[int, ...]:
        """The shape of what has to be read for the first ``count`` entries, or for all."""
        if count is None or self.fortran or not self.shape:
            return self.shape
        return (min(count, self.shape[0]), *self.shape[1:])

    def size(self, count: int | None) -> int:
        """Bytes of the first ``count`` entries, as they have to be read."""
        return math.prod(self.first(count)) * self.dtype.itemsize


class ArrayFile:
    """A .npy file, whose array has no name, or an .npz file. Members are read only when they are asked for.

    Methods raise ArrayError, and those of `npudriver.archive.BAD_ARCHIVE`, for damaged files.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with open_file(path) as file:
            magic = file.read(len(_NPY_MAGIC))
        self._members: dict[str, str] | None = None
        if magic.startswith(_ZIP_MAGIC):
            with open_file(path) as file, zipfile.ZipFile(file) as archive:
                self._members = {name.removesuffix(_SUFFIX): name for name in archive.namelist()}
        elif magic != _NPY_MAGIC:
            raise ArrayError("neither an .npy nor an .npz file")

    @property
    def names(self) -> list[str] | None:
        """The arrays of an .npz file, None for an .npy file."""
        return None if self._members is None else list(self._members)

    @contextmanager
    def _open(self, name: str) -> Iterator[tuple[IO[bytes], int]]:
        """A stream with an array, and its size."""
        if self._members is None:
            with open_file(self._path) as file:
                yield file, os.fstat(file.fileno()).st_size
            return
        with open_file(self._path) as file, zipfile.ZipFile(file) as archive:
            member = self._members[name]
            with open_member(archive, member) as stream:
                yield stream, archive.getinfo(member).file_size

    @staticmethod
    def _header(stream: IO[bytes]) -> Header:
        version = npy.read_magic(stream)
        if version not in _HEADERS:
            raise ArrayError(f"an array of format {version[0]}.{version[1]}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")     # of headers that Python 2 wrote
                shape, fortran, dtype = _HEADERS[version](stream)
        except Exception as error:      # it is parsed as Python, which raises anything
            raise ArrayError(f"a damaged header, {type(error).__name__}") from None
        if min(shape, default=0) < 0:
            raise ArrayError(f"an array of shape {shape}")
        return Header(shape, dtype, fortran)

    def header(self, name: str = "") -> Header:
        """That of the array ``name``, which an .npy file ignores."""
        with self._open(name) as (stream, _):
            return self._header(stream)

    def read(self, name: str = "", count: int | None = None) -> np.ndarray:
        """An array of numbers, or its first ``count`` entries, as many as there are."""
        with self._open(name) as (stream, size):
            header = self._header(stream)
            if header.dtype.hasobject:
                raise ArrayError("an array of objects")
            shape, needed = header.first(count), header.size(count)
            if needed > size:
                raise ArrayError(f"cut short: an array of shape {header.shape} in {size:,} bytes")
            content = bytearray(needed)
            view, done = memoryview(content), 0
            while done < needed:
                read = stream.readinto(view[done:done + _CHUNK])  # type: ignore[attr-defined]
                if not read:
                    raise ArrayError(f"cut short: an array of shape {header.shape}")
                done += read
        array = np.frombuffer(content, header.dtype)
        return (array.reshape(shape[::-1]).T if header.fortran else array.reshape(shape))[:count]
