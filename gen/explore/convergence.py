"""Convergence of a search: how good the best point was after so many evaluations."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gen.files.figure import new_figure, title_of

from .evaluation import Evaluation, Objective

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["best_so_far", "plot_convergence"]


def best_so_far(evaluations: Sequence[Evaluation], objective: Objective) -> list[float]:
    """The best figure of the first, the first two, ... evaluations; points that have none count for nothing."""
    best, curve = float("inf"), []
    for one in evaluations:
        if objective.name in one.figures:
            best = min(best, objective.loss(one.figures[objective.name]))
        curve.append(objective.loss(best))
    return curve


def plot_convergence(curves: Mapping[str, Sequence[Sequence[float]]], figure_name: str, title: Sequence[str]
                     ) -> "Figure":
    """Of each name the mean of some runs, and between which values they are, under lines of title. Runs that ended
    stay as they are.
    """
    import numpy as np

    figure = new_figure(9, 5)
    axes = figure.subplots()
    longest = max((len(run) for runs in curves.values() for run in runs), default=0)
    for name, runs in curves.items():
        values = np.array([[*run, *[run[-1]] * (longest - len(run))] for run in runs if len(run)])
        if not values.size:
            continue
        across = np.arange(1, longest + 1)
        (line,) = axes.plot(across, values.mean(axis=0), label=name)
        axes.fill_between(across, values.min(axis=0), values.max(axis=0), alpha=0.2, color=line.get_color())
    axes.set(xlabel="evaluations", ylabel=f"best {figure_name}")
    axes.set_title(title_of(title), fontsize="medium")
    axes.grid(alpha=0.3)
    if curves:
        axes.legend()
    return figure
