"""Output files appear whole or not at all."""

import os
import tempfile
from pathlib import Path

__all__ = ["write_file"]


def write_file(path: Path, content: str | bytes | memoryview) -> None:
    """Write through a temporary file beside ``path``; folders are made. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp's files are the owner's alone
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
