"""Outputs appear whole or not at all."""

import errno
import os
import tempfile
from pathlib import Path

__all__ = ["replace_file", "require_writable", "write_file"]


def require_writable(path: Path) -> None:
    """Raises OSError if no file can be written to ``path``: to be asked before the work that makes its content."""
    wrong = 0
    if path.is_dir():
        wrong = errno.EISDIR
    elif path.exists():
        # Root may write what is read-only, but does not mean to.
        if not (path.stat().st_mode & 0o222 and os.access(path, os.W_OK)):
            wrong = errno.EACCES
    if not wrong and not _is_special(path):
        folder = next(parent for parent in _target(path).parents if parent.exists())
        if not folder.is_dir():
            wrong = errno.ENOTDIR
        elif not os.access(folder, os.W_OK | os.X_OK):
            wrong = errno.EACCES
    if wrong:
        raise OSError(wrong, os.strerror(wrong), str(path))


def write_file(path: Path, content: str | bytes | memoryview) -> None:
    """Write through a temporary file beside ``path``; folders are made, links are followed. Raises OSError."""
    require_writable(path)
    data = content.encode() if isinstance(content, str) else content
    try:
        if _is_special(path):
            path.write_bytes(data)
        else:
            replace_file(_target(path), data)
    except OSError as error:  # which may name the temporary file, or none
        raise OSError(error.errno, error.strerror, str(path)) from None


def replace_file(target: Path, data: bytes | memoryview) -> None:
    """A file in place of what is there: a link, a FIFO or a device, too, which are not written to. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:200]}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp's files are the owner's alone
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _is_special(path: Path) -> bool:
    """Whether ``path`` is there and takes bytes, but is not to be replaced by a file, such as /dev/null."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _target(path: Path) -> Path:
    """The file that links lead to."""
    return Path(os.path.realpath(path))
