"""The charge of a battery over time, as CSV and as a plot."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gen.files.figure import new_figure, title_of

from .strategies import Strategy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "trace_csv"]


def trace_csv(strategies: Sequence[Strategy]) -> str:
    """The ends of each phase of each strategy; in between the charge falls evenly."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["strategy", "seconds", "inferences", "charge", "level", "mhz", "volts", "length", "accuracy",
                     "energy_of_an_inference"])
    for strategy in strategies:
        done = 0
        for phase in strategy.discharge.phases:
            setting = phase.setting
            facts = [setting.level.name, setting.level.mhz, setting.level.volts, setting.length, setting.accuracy,
                     setting.energy]
            writer.writerow([strategy.name, phase.begin, done, phase.charge, *facts])
            done += phase.inferences
            writer.writerow([strategy.name, phase.end, done, phase.left, *facts])
    return text.getvalue()


def plot(strategies: Sequence[Strategy], title: Sequence[str], thresholds: Mapping[str, float]) -> "Figure":
    """Charge over inferences, a line a strategy, under lines of title; ``thresholds``: charge above which a level is
    used, by name.
    """
    figure = new_figure(9, 5)
    axes = figure.subplots()
    for colour, strategy in enumerate(strategies):
        done, across, up = 0, [0], [100.0]
        for phase in strategy.discharge.phases:
            done += phase.inferences
            across.append(done)
            up.append(100 * phase.left)
            axes.annotate(f"{phase.setting.level.name}, {phase.setting.length}",
                          ((across[-2] + across[-1]) / 2, (up[-2] + up[-1]) / 2), fontsize="x-small",
                          color=f"C{colour}")
        axes.plot(across, up, marker="o", color=f"C{colour}", label=f"{strategy.name}: {strategy.gain:.2f} times fixed")
    for name, above in thresholds.items():
        axes.axhline(100 * above, color="black", linewidth=0.5, linestyle=":")
        axes.annotate(f"{name} above", (0, 100 * above), fontsize="x-small")
    axes.set(xlabel="inferences", ylabel="charge, % (relative energy)", ylim=(0, 105))
    axes.set_title(title_of(title), fontsize="medium")
    axes.legend()
    return figure
