"""A bar for each layer: its cycles, and what they went to."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gen.files.colours import CAUSES
from gen.files.figure import new_figure, plain, title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["bars"]

#: Characters of a name in a plot.
_LONGEST_NAME = 60


def bars(profile: dict[str, Any], title: Sequence[str]) -> "Figure":
    """Of `gen.run.report.profile_of`, under lines of title."""
    layers = profile["layers"]
    parts = [{**{name: layer[name] for name in ("useful", "idle_pixels", "idle_lanes")}, **layer["stalls"]}
             for layer in layers]
    figure = new_figure(9, 1.5 + 0.28 * len(layers))
    axes = figure.subplots()
    names = [plain(layer["name"], _LONGEST_NAME) for layer in layers]
    places = range(len(layers))     # names need not be different
    left = [0] * len(layers)
    for cause, colour in CAUSES.items():
        widths = [part[cause] for part in parts]
        if any(widths):
            axes.barh(places, widths, left=left, label=cause.replace("_", " "), color=colour)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for index, layer in enumerate(layers):
        axes.text(left[index], index, f" {100 * layer['utilisation']:.0f} %", va="center", fontsize="small")
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xlim(right=1.12 * max(1, *left))  # room for the text after the longest bar
    axes.set_xlabel("cycles; at the bars' ends: multipliers in use")
    axes.set_title(title_of(title), fontsize="medium")
    axes.legend(fontsize="small")
    return figure
