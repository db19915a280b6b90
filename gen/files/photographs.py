"""Archives of photographs, a folder for each class."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cores.errors import NpugenError
from gen.files.pictures import PictureError, read_picture
from gen.files.read import open_file
from npudriver.archive import BAD_ARCHIVE, described, read_member

__all__ = ["PhotographsError", "read_photographs"]

#: Of a photograph's file; a raw one of 1,024 x 1,024 has 3 MiB.
_MOST_BYTES = 1 << 22
_SUFFIX = ".jpg"


class PhotographsError(NpugenError, ValueError):
    """An archive that does not hold photographs; the message names it."""

    code = "bad-images"


def read_photographs(path: Path, *, a_class: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """uint8 (N, height, width, 3), RGB, and labels (N,), int64, of a zip file of ``CLASS/NAME.jpg``.

    Class by class, in the order of the names, the first ``a_class`` of each. Raises PhotographsError for files that are
    damaged, none, or not of one size; OSError for missing ones.
    """
    open_file(path).close()     # what is raised from here on is about the content
    try:
        found = list(_read(path, a_class))
    except BAD_ARCHIVE as error:
        raise PhotographsError(f"{path}: damaged ({described(error)})") from None
    if not found:
        raise PhotographsError(f"{path}: no {_SUFFIX} files in folders, as CLASS/NAME{_SUFFIX}")
    return np.stack([pixels for pixels, _ in found]), np.array([label for _, label in found], np.int64)


def _read(path: Path, a_class: int | None) -> Iterator[tuple[np.ndarray, int]]:
    first: tuple[int, ...] | None = None
    with open_file(path) as file, zipfile.ZipFile(file) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(_SUFFIX) and name.count("/") == 1)
        for label, folder in enumerate(sorted({name.split("/")[0] for name in names})):
            for name in [name for name in names if name.startswith(f"{folder}/")][:a_class]:
                content = io.BytesIO(read_member(archive, name, _MOST_BYTES))
                try:
                    pixels, _ = read_picture(content, channels=3)
                except PictureError as error:
                    raise ValueError(f"{name}: {error}") from None
                first = first or pixels.shape
                if pixels.shape != first:
                    raise ValueError(f"{name}: {pixels.shape[0]}x{pixels.shape[1]}, where others are "
                                     f"{first[0]}x{first[1]}")
                yield pixels, label
