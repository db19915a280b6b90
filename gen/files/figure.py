"""Figures of Matplotlib as PNG, SVG or PDF: the same bytes whenever they are drawn."""

import io
import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gen.files.printable import printable
from gen.files.write import write_file
from sim.folders import cache_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["KINDS", "drawn", "new_figure", "plain", "title_of", "write_figure"]

#: Suffix -> what would differ from one drawing to the next.
KINDS = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}

#: What Agg can draw, and what a figure has unless it is too high for that: pixels, and pixels of an inch.
_HIGHEST, _DOTS = 60_000, 120
#: Characters of a line of a title.
_LONGEST_TITLE = 100


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


def drawn(figure: "Figure", kind: str = "png") -> bytes:
    """A figure as a file of a kind, one of `KINDS`."""
    import matplotlib

    buffer = io.BytesIO()
    # Without a salt, the names that an SVG has inside are random; text stays text, to be searched and edited.
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.hashsalt": "npugen", "svg.fonttype": "none"}):
        warnings.simplefilter("ignore")     # of characters that the font does not have
        figure.savefig(buffer, format=kind, dpi=min(_DOTS, _HIGHEST / figure.get_figheight()), metadata=KINDS[kind])
    return buffer.getvalue()


def write_figure(path: Path, figure: "Figure") -> None:
    """As the suffix of ``path`` says. Raises ValueError for one that is not of `KINDS`, OSError."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in KINDS:
        raise ValueError(f"{path}: must end in {', '.join(f'.{name}' for name in KINDS)}")
    write_file(path, drawn(figure, kind))


def title_of(lines: Sequence[str]) -> str:
    """Of what a figure is, and on which machine, board and clock: a line each, cut where they are long."""
    return "\n".join(plain(line, _LONGEST_TITLE) for line in lines)


def plain(text: str, most: int) -> str:
    """A name that Matplotlib can draw and does not take for a formula, of ``most`` characters and dots."""
    short = text if len(text) <= most else f"{text[:most]}..."
    return printable(short).replace("$", r"\$")
