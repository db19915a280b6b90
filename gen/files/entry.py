"""Results that are kept for the next time: a file each, with a digest.

One that was cut, damaged, or kept under another name is as good as none.
"""

import hashlib
from pathlib import Path

from gen.files.read import read_file
from gen.files.write import replace_file

__all__ = ["EntryError", "read_entry", "write_entry"]


class EntryError(ValueError):
    """A file that is no entry, or not the one that it was."""


def write_entry(path: Path, content: str | bytes) -> None:
    """Keep ``content``, in place of what is there; what decides it is in the file's name. Raises OSError."""
    data = content.encode() if isinstance(content, str) else content
    replace_file(path, _seal(path.name, data) + data)


def read_entry(path: Path) -> bytes:
    """What was kept. Raises EntryError, OSError."""
    kept = read_file(path)
    seal, line, data = kept.partition(b"\n")
    if seal + line != _seal(path.name, data):
        raise EntryError(f"{path}: damaged, or none of this name")
    return data


def _seal(name: str, data: bytes) -> bytes:
    """A line in front of the content."""
    digest = hashlib.sha256(f"{name}\0".encode())
    digest.update(data)
    return f"{digest.hexdigest()}\n".encode()
