"""Inputs are looked at before they are read; every file that is read is opened here."""

import errno
import os
from pathlib import Path

from npudriver.files import open_file, read_file, read_text, reason

__all__ = ["is_zip", "open_file", "read_file", "read_text", "reason", "require_file"]

#: First bytes of a zip file, even of a truncated one.
_ZIP_MAGIC = b"PK\x03\x04"


def require_file(path: Path) -> None:
    """Raises OSError unless there is a file to read that has content, and an end: a folder or a device has none."""
    with open_file(path) as file:
        if not os.fstat(file.fileno()).st_size:
            raise OSError(errno.ENODATA, "the file is empty", str(path))


def is_zip(path: Path) -> bool:
    """Raises OSError as `require_file`, or when the file cannot be read."""
    require_file(path)
    with open_file(path) as file:
        return file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC
