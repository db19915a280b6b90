"""Figures of Matplotlib as PNG: the same bytes whenever they are drawn."""

import io
import os
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING

from gen.files.printable import printable
from sim.folders import cache_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["new_figure", "plain", "png"]

#: What Agg can draw, and what a figure has unless it is too high for that: pixels, and pixels of an inch.
_HIGHEST, _DOTS = 60_000, 120


def new_figure(width: float, height: float) -> "Figure":
    """Without a window; inches. Matplotlib takes its time to be imported, so that is done here."""
    _keep_fonts_with_us()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _keep_fonts_with_us() -> None:
    """What Matplotlib finds of fonts goes to our folder of results, not to the user's home, unless he has said where.

    It looks when it is first imported; where the folder cannot be made, it finds a place of its own.
    """
    if "MPLCONFIGDIR" not in os.environ:
        folder = cache_folder() / "matplotlib"
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            os.environ["MPLCONFIGDIR"] = str(folder)


def png(figure: "Figure") -> bytes:
    """A figure as a file."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")     # of characters that the font does not have
        figure.savefig(buffer, format="png", dpi=min(_DOTS, _HIGHEST / figure.get_figheight()),
                       metadata={"Software": None})
    return buffer.getvalue()


def plain(text: str, most: int) -> str:
    """A name that Matplotlib can draw and does not take for a formula, of ``most`` characters and dots."""
    short = text if len(text) <= most else f"{text[:most]}..."
    return printable(short).replace("$", r"\$")
