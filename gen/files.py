"""Output files appear whole or not at all."""

import errno
import os
import tempfile
from pathlib import Path

__all__ = ["require_writable", "write_file"]


def require_writable(path: Path) -> None:
    """Raises OSError if no file can be written to ``path``: to be asked before the work that makes its content."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    wrong = 0
    if path.is_dir():
        wrong = errno.EISDIR
    elif not folder.is_dir():
        wrong = errno.ENOTDIR
    elif not os.access(folder, os.W_OK | os.X_OK):
        wrong = errno.EACCES
    if wrong:
        raise OSError(wrong, os.strerror(wrong), str(path))


def write_file(path: Path, content: str | bytes | memoryview) -> None:
    """Write through a temporary file beside ``path``; folders are made. Raises OSError."""
    if path.exists() and not path.is_file() and not path.is_dir():  # such as /dev/null: not to be replaced
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return
    require_writable(path)
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
