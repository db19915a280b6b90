"""The points of a search, and its front, in the plane of two objectives."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gen.files.figure import new_figure, plain, png

from .evaluation import Evaluation
from .report import Found

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot"]

#: Of a legend; more values are not told apart by colours.
_MOST_COLOURS = 12
#: Of a name in a legend.
_LONGEST = 80


def plot(found: Found, title: str) -> bytes:
    """PNG: feasible points by the first two objectives (by area too, if there is one alone), the front as a line."""

    figure = new_figure(9, 6)
    axes = figure.subplots()
    names = [*(objective.name for objective in found.objectives), "area"][:2]
    units = {objective.name: objective.unit for objective in found.objectives} | {"area": "%"}
    feasible = [one for one in found.evaluations if one.feasible and all(name in one.figures for name in names)]
    _scatter(axes, feasible, names, _colour_by(found))
    best = [found.evaluations[number] for number in found.front]
    _front(axes, best, names, line=len(found.objectives) == 2)
    for set_label, set_scale, name in ((axes.set_xlabel, axes.set_xscale, names[0]),
                                       (axes.set_ylabel, axes.set_yscale, names[1])):
        values = [one.figures[name] for one in feasible]
        set_label(name + (f" ({units[name]})" if units.get(name) else ""))
        if values and min(values) > 0 and max(values) > 4 * min(values):
            set_scale("log")
    left = len(found.evaluations) - len(feasible)
    axes.set_title(plain(f"{title}: {len(feasible)} points" + (f", {left} more infeasible" if left else ""), _LONGEST))
    axes.grid(alpha=0.3, which="both")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
    return png(figure)


def _colour_by(found: Found) -> str | None:
    """The parameter whose values have colours: the first in words, else the first that is varied."""
    varied = [name for name in found.space.varied if len(found.space.axes[name]) <= _MOST_COLOURS]
    in_words = [name for name in varied if any(isinstance(value, str) for value in found.space.axes[name])]
    return next(iter(in_words + varied), None)


def _scatter(axes: "Axes", points: Sequence[Evaluation], names: Sequence[str], by: str | None) -> None:
    kinds = list(dict.fromkeys(one.point[by] for one in points)) if by else [None]
    for number, kind in enumerate(kinds):
        some = [one for one in points if by is None or one.point[by] == kind]
        axes.scatter([one.figures[names[0]] for one in some], [one.figures[names[1]] for one in some], s=22, alpha=0.75,
                     color=f"C{number % 10}", marker="os"[number // 10],
                     label=None if by is None else plain(f"{by} {kind}", _LONGEST))


def _front(axes: "Axes", points: Sequence[Evaluation], names: Sequence[str], *, line: bool) -> None:
    shown = [one for one in points if all(name in one.figures for name in names)]
    across, up = ([one.figures[name] for one in shown] for name in names)
    axes.scatter(across, up, s=70, facecolors="none", edgecolors="black", label="front")
    if line:
        axes.step(across, up, where="post", color="black", linewidth=0.8)
