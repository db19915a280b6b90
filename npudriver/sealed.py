"""Files with their SHA-256: a JSON file that has the digests of those beside it, and its own.

The digests find what copying, storage and editing do to a file. They are no signature: whoever changes a file on
purpose can write its digest anew, so those who read a file check what they read as well.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Mapping

from .errors import PackageError
from .fields import Fields, parsed
from .storage import Source, Storage

__all__ = ["Sealed", "is_plain", "sealed_json"]

#: Bytes of a JSON file, far beyond what compiled networks need (MobileNetV2: 40 KB).
_MAX_JSON = 1 << 24
_DIGEST, _FILES = "sha256", "files"


def is_plain(name: str) -> bool:
    """Whether a name is that of a file in a folder, and of nothing elsewhere."""
    return name not in ("", ".", "..") and name.isprintable() and "/" not in name


#: The end of a sealed file: the digest of all that comes before it.
_SEAL = b',\n "sha256": "%s"\n}\n'


def _seal(text: bytes) -> bytes:
    return _SEAL % hashlib.sha256(text).hexdigest().encode()


def sealed_json(header: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """The content of a JSON file, with the digests of ``files`` that are to lie beside it (or in folders there)."""
    digests = {name: {"bytes": len(content), _DIGEST: hashlib.sha256(content).hexdigest()}
               for name, content in files.items()}
    text = json.dumps({**header, _FILES: digests}, indent=1)[:-len("\n}")].encode()
    return text + _seal(text)


class Sealed:
    """The files that `sealed_json` has the digests of, by its file ``name`` in a package. Every call raises
    PackageError.

    ``header``: what the file has, without format, version and digests. A file of another format or version is refused,
    and so is one that was written before there were digests.
    """

    def __init__(self, storage: Storage, name: str, content: bytes, *, format: str, version: int) -> None:
        self.storage, self._base = storage, name.rpartition("/")[0]
        try:
            values = parsed(content)
        except ValueError as error:
            raise storage.damaged(name, _line(error)) from None
        self.header = Fields(values, storage.where(name), storage.remedy)
        found = (self.header.take("format"), self.header.take("version"))
        if found != (format, version) or isinstance(found[1], bool):
            raise PackageError(f"{storage.where(name)}: made by another version; {storage.remedy}", code="old-package")
        self.header.take(_DIGEST)
        text = content[:-len(_seal(b""))]
        if content != text + _seal(text):
            raise storage.damaged(name, "its SHA-256 is another")
        self._digests = {}
        files = self.header.inner(_FILES)
        for listed in files.names():
            entry = files.inner(listed)
            self._digests[listed] = (entry.integer("bytes", 0, (1 << 63) - 1), entry.text(_DIGEST))
            entry.end()

    @classmethod
    def of(cls, storage: Storage, name: str, *, format: str, version: int) -> Sealed:
        """Those of a package, by its outermost file."""
        return cls(storage, name, storage.read(name, _MAX_JSON), format=format, version=version)

    def inner(self, name: str, *, format: str, version: int) -> Sealed:
        """Those of another such file, which is one of these."""
        return type(self)(self.storage, self._path(name), self.read(name, _MAX_JSON), format=format, version=version)

    def lists(self, name: str) -> bool:
        """Whether there is to be such a file."""
        return name in self._digests

    def read(self, name: str, limit: int) -> bytes:
        """A file, which may have ``limit`` bytes and must be the one that was written."""
        size, digest = self._listed(name)
        content = self.storage.read(self._path(name), limit, size)
        if hashlib.sha256(content).hexdigest() != digest:
            raise self.storage.damaged(self._path(name), "its SHA-256 is another")
        return content

    def source(self, name: str) -> Source:
        """A file, which must be the one that was written; one of a folder is not kept in memory."""
        size, digest = self._listed(name)
        source, found = self.storage.source(self._path(name), size)
        if found != digest:
            raise self.storage.damaged(self._path(name), "its SHA-256 is another")
        return source

    def where(self, name: str) -> str:
        """A file in a message."""
        return self.storage.where(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}" if self._base else name

    def _listed(self, name: str) -> tuple[int, str]:
        if name not in self._digests:
            raise PackageError(f"{self.storage.where(self._base)}: has no digest of {name}; {self.storage.remedy}")
        return self._digests[name]


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
