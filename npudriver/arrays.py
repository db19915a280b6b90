"""Files of arrays (.npz): read with every kind of damage as one error, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Mapping

import numpy as np

from .errors import PackageError

__all__ = ["read_arrays", "write_arrays"]


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Name -> array. Raises PackageError."""
    try:
        with open(path, "rb") as content, np.load(content, allow_pickle=False) as file:     # which leaves it open
            if isinstance(file, np.ndarray):
                raise ValueError("a lone array")
            return dict(file)
    except (OSError, ValueError, EOFError, MemoryError, NotImplementedError, AttributeError, TypeError, zlib.error,
            zipfile.BadZipFile) as error:
        raise PackageError(f"{path}: not an .npz file, or damaged ({error})") from None


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Raises OSError; what was there before is there then."""
    handle, temporary = tempfile.mkstemp(dir=str(path.parent), prefix=f".{path.name[:200]}.")
    try:
        # Not np.savez_compressed, whose own arguments are names like any other.
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        os.chmod(temporary, 0o666 & ~_mask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
