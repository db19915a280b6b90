"""Pixels from image files."""

import warnings
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, UnidentifiedImageError

from gen.files.read import open_file

__all__ = ["PictureError", "read_picture"]

#: Formats that are read; others, some of which start programs, are not even looked at.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")

#: Pillow's modes of up to 8 bits a channel, which it converts into one another; and names for those that say little.
_MODES = {
    "1": "black and white", "L": "gray", "LA": "gray with alpha", "P": "palette", "PA": "palette with alpha",
    "RGB": "RGB", "RGBA": "RGBA", "RGBX": "RGBX", "CMYK": "CMYK", "YCbCr": "YCbCr",
}
#: Of those, what has transparent pixels; their colour is taken as it is.
_ALPHA = frozenset({"LA", "PA", "RGBA"})
#: TIFF's tags for the bits of a channel and for what 0 means.
_BITS_PER_SAMPLE, _PHOTOMETRIC, _WHITE_IS_ZERO = 258, 262, 0

_WAY_OUT = "save it as 8-bit PNG, or give an .npz file"


class PictureError(ValueError):
    """A file that is no image, or none that can be taken for 8-bit pixels; an InputError says which, and why."""


def read_picture(file: Path | IO[bytes], *, channels: int, width: int | None = None,
                 height: int | None = None) -> tuple[np.ndarray, str]:
    """uint8 (height, width, channels) of an image file, gray or RGB, and what was done to it, for people.

    It is scaled to the sizes that are given. Every mode keeps its range: black is 0 and white is 255. Raises
    PictureError; OSError for a file that cannot be opened.
    """
    if isinstance(file, Path):
        with open_file(file) as opened:
            return read_picture(opened, channels=channels, width=width, height=height)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # of odd metadata
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=_FORMATS) as image:
                before, name = f"{image.width} x {image.height}", _mode_name(image)
                transparent = image.mode in _ALPHA or "transparency" in image.info
                colours = _eight_bits(image).convert("L" if channels == 1 else "RGB")
                size = width or image.width, height or image.height
                pixels = np.asarray(colours.resize(size, Image.Resampling.BILINEAR))
    except PictureError:
        raise
    except UnidentifiedImageError:
        raise PictureError("not an .npz or .npy file, nor an image") from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise PictureError(f"an image of more than {Image.MAX_IMAGE_PIXELS:,} pixels; scale it down") from None
    except MemoryError:
        raise
    except Exception as error:      # a damaged image makes Pillow raise anything
        raise PictureError(f"damaged, or not an image ({error or type(error).__name__})") from None
    after = f"{size[0]} x {size[1]} {_MODES[colours.mode]}"
    change = f"{after}, as it is" if after == f"{before} {name}" else f"{before} {name} converted to {after}"
    return pixels.reshape(size[1], size[0], channels), f"{change}{', without its transparency' if transparent else ''}"


def _mode_name(image: Image.Image) -> str:
    return f"{_sample_bits(image)}-bit gray" if image.mode.startswith("I") else _MODES.get(image.mode, image.mode)


def _sample_bits(image: Image.Image) -> int:
    """Bits of a gray value of more than 8; 32 where the file may mean anything by it."""
    if image.mode.startswith("I;16"):
        tags = getattr(image, "tag_v2", {})     # TIFF also has 12
        return int(tags.get(_BITS_PER_SAMPLE, (16,))[0])
    # Pillow scales PGM files of more than 8 bits to 16.
    return 16 if image.mode == "I" and image.format == "PPM" else 32


def _eight_bits(image: Image.Image) -> Image.Image:
    """The image in a mode of `_MODES`."""
    if image.mode in _MODES:
        return image
    bits = _sample_bits(image)
    if not image.mode.startswith("I") or bits > 16:
        kind = {"I": "32-bit integers", "F": "floating-point numbers"}.get(image.mode, f"in mode {image.mode}")
        raise PictureError(f"its pixels are {kind}, whose range is not known; {_WAY_OUT}")
    values = np.asarray(image).astype(np.float64) * (255 / ((1 << bits) - 1))
    if getattr(image, "tag_v2", {}).get(_PHOTOMETRIC) == _WHITE_IS_ZERO:
        values = 255 - values
    return Image.fromarray(np.rint(np.clip(values, 0, 255)).astype(np.uint8))
