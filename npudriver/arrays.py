"""Files of arrays (.npz): read with every kind of damage as one error, written whole or not at all."""

from __future__ import annotations

import io
import os
import struct
import tempfile
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Mapping

import numpy as np

from .errors import PackageError
from .files import named, open_file

__all__ = ["arrays_in", "packed_arrays", "read_arrays", "write_arrays"]


#: What reading a damaged or hostile file can raise: NumPy looks into headers with Python's own parser.
_BAD = (OSError, ValueError, EOFError, MemoryError, NotImplementedError, AttributeError, TypeError, LookupError,
        ArithmeticError, RecursionError, SyntaxError, tokenize.TokenError, struct.error, zlib.error, zipfile.BadZipFile)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Name -> array. Raises PackageError."""
    try:
        with open_file(path) as content:    # which np.load leaves open
            return _loaded(content)
    except _BAD as error:
        raise _damaged(str(path), error) from None


def arrays_in(content: bytes, path: str, *, limit: int) -> dict[str, np.ndarray]:
    """As `read_arrays`, of the content of a file, whose arrays may have so many bytes together."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(member.file_size for member in archive.infolist()) > limit:
                raise ValueError(f"more than {limit:,} bytes of arrays")
        return _loaded(io.BytesIO(content))
    except _BAD as error:
        raise _damaged(path, error) from None


def _loaded(content: IO[bytes]) -> dict[str, np.ndarray]:
    with np.load(content, allow_pickle=False) as file:
        if isinstance(file, np.ndarray):
            raise ValueError("a lone array")
        arrays = {name: file[name] for name in file.files}
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("a member that is no array")
    return arrays


def _damaged(path: str, error: BaseException) -> PackageError:
    outside = isinstance(error, OSError) and error.filename is None     # an offset that no file has
    what = "it points outside itself" if outside else " ".join(str(error).split())[:200]
    return PackageError(f"{path}: not an .npz file, or damaged ({what})", code="bad-input")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Raises OSError; what was there before is there then."""
    handle, temporary = tempfile.mkstemp(dir=str(path.parent), prefix=f".{path.name[:200]}.")
    try:
        with named(path), os.fdopen(handle, "wb") as file:
            _write(file, arrays)
        os.chmod(temporary, 0o666 & ~_mask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def packed_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The content of such a file; the same arrays give the same."""
    content = io.BytesIO()
    _write(content, arrays)
    return content.getvalue()


def _write(file: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Not np.savez_compressed, whose own arguments are names like any other."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            info = zipfile.ZipInfo(f"{name}.npy")
            info.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
