"""Files that are read: none but regular ones, which have an end and do not wait for anybody. Errors name files."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Iterator

__all__ = ["named", "open_file", "read_file"]


def open_file(path: Path | str) -> IO[bytes]:
    """A regular file to be read. Raises OSError, also for folders, devices and FIFOs, which are not waited for."""
    # Not looked at by its name first: it may be another then.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
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


@contextmanager
def named(path: Path | str) -> Iterator[None]:
    """Errors of the system that come out of it name ``path``: that of a write, such as a full disk's, names nothing."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
