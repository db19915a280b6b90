"""The points of a search, and its front, in the plane of two objectives."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gen.files.figure import new_figure, plain, title_of

from .evaluation import Evaluation
from .report import Found

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot"]

#: Of a legend; more values are not told apart by colours.
_MOST_COLOURS = 12
#: Of points with their parameters beside them.
_MOST_LABELS = 24
#: Of a name in a legend.
_LONGEST = 80


def plot(found: Found, title: str) -> "Figure":
    """Feasible points by the first two objectives (by area too, if there is one alone), the front as a line.

    A colour is a value of one parameter; beside a point of the front are the values of the others that are varied.
    ``title``: of what, and on what; which clocks, and how many points, is added.
    """

    figure = new_figure(9, 6)
    axes = figure.subplots()
    names = [*(objective.name for objective in found.objectives), "area"][:2]
    units = {objective.name: objective.unit for objective in found.objectives} | {"area": "mean share of the device, %"}
    feasible = [one for one in found.evaluations if one.feasible and all(name in one.figures for name in names)]
    by = _colour_by(found)
    _scatter(axes, feasible, names, by)
    best = [found.evaluations[number] for number in found.front]
    _front(axes, best, names, line=len(found.objectives) == 2)
    _label(axes, best, names, [name for name in found.space.varied if name != by])
    for set_label, set_scale, name in ((axes.set_xlabel, axes.set_xscale, names[0]),
                                       (axes.set_ylabel, axes.set_yscale, names[1])):
        values = [one.figures[name] for one in feasible]
        set_label(name + (f" ({units[name]})" if units.get(name) else ""))
        if values and min(values) > 0 and max(values) > 4 * min(values):
            set_scale("log")
    left = len(found.evaluations) - len(feasible)
    points = f"{len(feasible)} points" + (f", {left} more infeasible" if left else "")
    axes.set_title(title_of([title, ", ".join([*_machine(feasible), *_clocks(feasible), points])]), fontsize="medium")
    axes.margins(x=0.1)     # for the text beside points
    axes.grid(alpha=0.3, which="both")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
    return figure


def _machine(points: Sequence[Evaluation]) -> list[str]:
    """The MACs of all machines; none where they have several."""
    macs = {one.facts["mac_lanes"] for one in points if "mac_lanes" in one.facts}
    return [f"{lanes:,} MACs" for lanes in macs] if len(macs) == 1 else []


def _clocks(points: Sequence[Evaluation]) -> list[str]:
    """The clock of all machines, in words; none where they have several."""
    clocks = {(one.facts["clock_mhz"], one.facts["clock_basis"]) for one in points if "clock_mhz" in one.facts}
    return [f"{mhz:g} MHz, {basis}" for mhz, basis in clocks] if len(clocks) == 1 else []


def _label(axes: "Axes", points: Sequence[Evaluation], names: Sequence[str], varied: Sequence[str]) -> None:
    """Parameters beside points, where these are few enough to be told apart."""
    if varied and len(points) <= _MOST_LABELS:
        for one in points:
            if all(name in one.figures for name in names):
                text = ", ".join(f"{name} {one.point[name]}" for name in varied)
                axes.annotate(plain(text, _LONGEST // 2), (one.figures[names[0]], one.figures[names[1]]),
                              xytext=(6, 6), textcoords="offset points", fontsize="x-small")


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
