"""Members of zip files, which are looked at before they are read: a small file can hold a member of any size."""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import IO, Container, Mapping

__all__ = ["BAD_ARCHIVE", "ArchiveError", "described", "open_member", "output_member", "read_member", "write_archive"]

#: What `zipfile` raises for damaged archives; OSError where an offset leads out of the file.
BAD_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, RuntimeError, OSError)

#: What we and NumPy write; the other methods' readers are not bounded.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1


#: Members carry a fixed time, so that the same content is the same file.
_TIME = (1980, 1, 1, 0, 0, 0)


class ArchiveError(ValueError):
    """A member that is not read; the message names it, and whoever reads the archive adds which one that is."""


def described(error: Exception) -> str:
    """One of `BAD_ARCHIVE` in words."""
    return "it points outside itself" if isinstance(error, OSError) else str(error) or "it is cut short"


def output_member(name: str) -> str:
    """What an output's array is called in a file of outputs: PyTorch's exporter begins names with a slash, with which a
    member of an archive would be an absolute path.
    """
    return name.lstrip("/")


def open_member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """A member as a stream that gives no more bytes than its directory entry says. Raises ArchiveError, KeyError."""
    info = archive.getinfo(name)
    if info.compress_type not in _METHODS or info.flag_bits & _ENCRYPTED:
        raise ArchiveError(f"member {name} is encrypted or compressed in an unknown way")
    return archive.open(info)


def read_member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """All of a member, which may have ``limit`` bytes. Raises ArchiveError, KeyError, BadZipFile and zlib.error."""
    size = archive.getinfo(name).file_size
    if size > limit:
        raise ArchiveError(f"member {name} has {size:,} bytes where {limit:,} are the most there can be")
    with open_member(archive, name) as stream:
        content = stream.read()
    if len(content) != size:
        raise ArchiveError(f"member {name} has {len(content):,} bytes, not {size:,}")
    return content


def write_archive(members: Mapping[str, bytes], *, plain: Container[str] = ()) -> memoryview:
    """A zip file. Members are compressed, but for those named in ``plain``; the same ones give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name, _TIME)
            info.compress_type = zipfile.ZIP_STORED if name in plain else zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, content)
    return buffer.getbuffer()
