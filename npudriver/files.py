"""Files that are read: none but regular ones, which have an end and do not wait for anybody. Errors name files."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Iterator

__all__ = ["named", "open_file", "read_file", "read_text", "reason"]


_NO_FILE = "not a regular file"


def open_file(path: Path | str) -> IO[bytes]:
    """A regular file to be read. Raises OSError, also for folders, devices and FIFOs, which are not waited for."""
    # Not looked at by its name first: it may be another then.
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:      # of a socket, or a device that is not there
            raise
        raise OSError(errno.EINVAL, _NO_FILE, str(path)) from None
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, _NO_FILE, str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_file(path: Path | str, limit: int | None = None) -> bytes:
    """All of a regular file, which may have ``limit`` bytes. Raises OSError, as `open_file` does."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if limit is not None and size > limit:
            raise OSError(errno.EFBIG, f"{size:,} bytes, where {limit:,} are the most there can be", str(path))
        return file.read()


def read_text(path: Path | str, limit: int | None = None, *, errors: str = "strict") -> str:
    """As `read_file`, of text in UTF-8. Raises UnicodeDecodeError, a ValueError, too, unless ``errors`` says what else.
    """
    return read_file(path, limit).decode(errors=errors).replace("\r\n", "\n")


def reason(error: Exception) -> str:
    """What an error says for people who know the file: of the system's without number and name."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


@contextmanager
def named(path: Path | str) -> Iterator[None]:
    """Errors of the system that come out of it name ``path``: that of a write, such as a full disk's, names nothing."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
