"""Archives of photographs of one's own."""

import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

__all__ = ["jpeg", "write_archive"]


def jpeg(pixels: np.ndarray) -> bytes:
    """Of (height, width, 3) or, gray, (height, width) values from 0 to 255."""
    content = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(content, "JPEG", quality=95)
    return content.getvalue()


def write_archive(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
