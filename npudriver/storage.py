"""Where the files of a package are: in a folder, or in one ``.npu`` file."""

from __future__ import annotations

import hashlib
import os
import zipfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO, TypeVar, Union

from .archive import BAD_ARCHIVE, described, read_member
from .errors import PackageError
from .files import open_file

__all__ = ["Archive", "Directory", "Source", "Storage", "open_storage"]

_CHUNK = 1 << 20
#: A file of a folder, or the content of one of an archive.
Source = Union[Path, bytes]
_Self = TypeVar("_Self", bound="Storage")


class Storage(ABC):
    """Files by names with slashes. All methods raise PackageError.

    ``path``: of the package; ``remedy``: what to do about a damaged one; ``room``: bytes that arrays of all programs
    may still have once they are unpacked, as a small file can hold arrays of any size.
    """

    path: Path
    remedy: str
    room = 1 << 28

    @abstractmethod
    def __enter__(self: _Self) -> _Self: ...

    @abstractmethod
    def __exit__(self, *exception: object) -> None: ...

    @abstractmethod
    def where(self, name: str) -> str:
        """A file in a message."""

    @abstractmethod
    def read(self, name: str, limit: int, size: int | None = None) -> bytes:
        """A file, which may have ``limit`` bytes, and has ``size`` if that is known."""

    @abstractmethod
    def source(self, name: str, size: int) -> tuple[Source, str]:
        """A file of ``size`` bytes, and its SHA-256."""

    def damaged(self, name: str, reason: str) -> PackageError:
        return PackageError(f"{self.where(name)}: damaged ({reason}); {self.remedy}")

    def require_size(self, name: str, found: int, limit: int, size: int | None) -> None:
        if size not in (None, found):
            raise self.damaged(name, f"{found:,} bytes, not {size:,}")
        if found > limit:
            raise PackageError(f"{self.where(name)}: has more than {limit:,} bytes; {self.remedy}")


class Directory(Storage):
    """A folder. A file is no device, nor a pipe that would be waited for, nor what a link elsewhere names."""

    remedy = "deploy the model again"

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def where(self, name: str) -> str:
        return str(self.path / name)

    def read(self, name: str, limit: int, size: int | None = None) -> bytes:
        with self._opened(name) as file:
            self.require_size(name, os.fstat(file.fileno()).st_size, limit, size)
            content = file.read(limit + 1)
        self.require_size(name, len(content), limit, size)
        return content

    def source(self, name: str, size: int) -> tuple[Source, str]:
        digest = hashlib.sha256()
        with self._opened(name) as file:
            self.require_size(name, os.fstat(file.fileno()).st_size, size, size)
            for chunk in iter(lambda: file.read(_CHUNK), b""):
                digest.update(chunk)
        return self.path / name, digest.hexdigest()

    def _opened(self, name: str) -> IO[bytes]:
        path = self.path / name
        try:
            real, root = os.path.realpath(str(path)), os.path.realpath(str(self.path))
            if os.path.commonpath([real, root]) != root:
                raise PackageError(f"{path}: leads out of the package; copy the file itself there")
            return open_file(real)
        except OSError as error:
            raise PackageError(f"{path}: not a deployed model, or damaged ({error.strerror or error}); name the folder "
                               "of one, or deploy it again") from None


class Archive(Storage):
    """A ``.npu`` file, a zip file. Its members are written as they are, and what is read is no larger than the file,
    compressed or not.
    """

    remedy = "compile it again"

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._content = open_file(path)
        except OSError as error:
            raise PackageError(f"{path}: {error.strerror or error}", code="unreadable-file") from None
        try:
            self._left = os.fstat(self._content.fileno()).st_size
            self._file = zipfile.ZipFile(self._content)
            #: Of all files.
            self.names = frozenset(self._file.namelist())
        except BAD_ARCHIVE as error:
            self._content.close()
            raise PackageError(f"{path}: not a program, or damaged ({described(error)}); {self.remedy}",
                               code="not-a-program") from None

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *exception: object) -> None:
        self._content.close()

    def where(self, name: str) -> str:
        return f"{self.path}: {name}"

    def read(self, name: str, limit: int, size: int | None = None) -> bytes:
        try:
            content = read_member(self._file, name, min(limit, self._left))
        except KeyError:
            raise self.damaged(name, "it is missing") from None
        except BAD_ARCHIVE as error:
            raise PackageError(f"{self.path}: damaged ({described(error)}); {self.remedy}") from None
        self._left -= len(content)
        self.require_size(name, len(content), limit, size)
        return content

    def source(self, name: str, size: int) -> tuple[Source, str]:
        content = self.read(name, size, size)
        return content, hashlib.sha256(content).hexdigest()


def open_storage(path: Path) -> Storage:
    """Of a folder, or else of a ``.npu`` file. Raises PackageError."""
    return Directory(path) if os.path.isdir(path) else Archive(path)
