"""Folders of files with their SHA-256: a JSON file that has the digests of those beside it, and its own.

The digests find what copying, storage and editing do to a file. They are no signature: whoever changes a file on
purpose can write its digest anew, so those who read a file check what they read as well.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Iterable, Iterator, Mapping

from .errors import PackageError
from .fields import Fields, parsed
from .files import open_file, read_file

__all__ = ["Folder", "is_plain", "write_sealed"]

#: Bytes of a JSON file, far beyond what compiled networks need (MobileNetV2: 40 KB).
_MAX_JSON = 1 << 24
_CHUNK = 1 << 20
_DIGEST, _FILES = "sha256", "files"


def is_plain(name: str) -> bool:
    """Whether a name is that of a file in a folder, and of nothing elsewhere."""
    return name not in ("", ".", "..") and name.isprintable() and "/" not in name


#: The end of a sealed file: the digest of all that comes before it.
_SEAL = b',\n "sha256": "%s"\n}\n'


def _seal(text: bytes) -> bytes:
    return _SEAL % hashlib.sha256(text).hexdigest().encode()


def write_sealed(path: Path, header: Mapping[str, Any], files: Iterable[str]) -> None:
    """Write a JSON file, with the digests of ``files`` beside it (or in folders there), which are written already.

    Raises OSError.
    """
    digests = {}
    for name in files:
        content = read_file(path.parent / name)
        digests[name] = {"bytes": len(content), _DIGEST: hashlib.sha256(content).hexdigest()}
    text = json.dumps({**header, _FILES: digests}, indent=1)[:-len("\n}")].encode()
    path.write_bytes(text + _seal(text))


class Folder:
    """A folder that `write_sealed` has written, by its JSON file. Every call raises PackageError.

    ``header``: what the file has, without format, version and digests. A file of another format or version is refused,
    and so is one that was written before there were digests.
    """

    def __init__(self, path: Path, name: str, *, format: str, version: int) -> None:
        self._path, file = path, path / name
        content = self._content(name, _MAX_JSON)
        try:
            values = parsed(content)
        except ValueError as error:
            raise PackageError(f"{file}: damaged ({_line(error)}); deploy the model again") from None
        self.header = Fields(values, str(file))
        found = (self.header.take("format"), self.header.take("version"))
        if found != (format, version) or isinstance(found[1], bool):
            raise PackageError(f"{file}: made by another version; deploy the model again", code="old-package")
        self.header.take(_DIGEST)
        text = content[:-len(_seal(b""))]
        if content != text + _seal(text):
            raise PackageError(f"{file}: damaged (its SHA-256 is another); deploy the model again")
        self._digests = {}
        files = self.header.inner(_FILES)
        for listed in files.names():
            entry = files.inner(listed)
            self._digests[listed] = (entry.integer("bytes", 0, (1 << 63) - 1), entry.text(_DIGEST))
            entry.end()

    def lists(self, name: str) -> bool:
        """Whether there is to be such a file."""
        return name in self._digests

    def read(self, name: str, limit: int) -> bytes:
        """A file, which may have ``limit`` bytes and must be the one that was written."""
        size, digest = self._listed(name)
        content = self._content(name, limit, size)
        if hashlib.sha256(content).hexdigest() != digest:
            raise self._other(name)
        return content

    def check(self, name: str) -> Path:
        """The path of a file, which must be the one that was written; it is not kept in memory."""
        size, digest = self._listed(name)
        found = hashlib.sha256()
        with self._opened(name, size) as file:
            for chunk in iter(lambda: file.read(_CHUNK), b""):
                found.update(chunk)
        if found.hexdigest() != digest:
            raise self._other(name)
        return self._path / name

    def _listed(self, name: str) -> tuple[int, str]:
        if name not in self._digests:
            raise PackageError(f"{self._path}: has no digest of {name}; deploy the model again")
        return self._digests[name]

    def _other(self, name: str) -> PackageError:
        return PackageError(f"{self._path / name}: damaged (its SHA-256 is another); deploy the model again")

    def _content(self, name: str, limit: int, size: int | None = None) -> bytes:
        with self._opened(name, size) as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise PackageError(f"{self._path / name}: has more than {limit:,} bytes; deploy the model again")
        return content

    @contextmanager
    def _opened(self, name: str, size: int | None) -> Iterator[IO[bytes]]:
        """A file of the folder, of ``size`` bytes if that is known: not a device, nor a pipe that would be waited for,
        nor what a link elsewhere names.
        """
        path = self._path / name
        try:
            real, root = os.path.realpath(str(path)), os.path.realpath(str(self._path))
            if os.path.commonpath([real, root]) != root:
                raise PackageError(f"{path}: leads out of the package; copy the file itself there")
            with open_file(real) as file:
                found = os.fstat(file.fileno()).st_size
                if size not in (None, found):
                    raise PackageError(f"{path}: damaged ({found:,} bytes, not {size:,}); deploy the model again")
                yield file
        except OSError as error:
            raise PackageError(f"{path}: not a deployed model, or damaged ({error.strerror or error}); name the folder "
                               "of one, or deploy it again") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
