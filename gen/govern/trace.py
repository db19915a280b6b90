"""A discharge as CSV and as a plot."""

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gen.files.figure import new_figure, plain, title_of

from .discharge import Discharge

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "trace_csv"]

#: Characters of a level's name in a plot.
_LONGEST = 30


def trace_csv(found: Discharge) -> str:
    """A row for each inference."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["inference", "seconds", "charge_ppm", "level", "shift", "clock_khz", "millivolts", "cycles",
                     "inference_seconds", "in_time", "late", "energy", "right", "differing"])
    for number, step in enumerate(found.steps):
        level = step.level
        writer.writerow([number, f"{step.began:.9g}", step.charge_ppm, level.name, level.shift, level.clock_khz,
                         level.millivolts, step.cycles, f"{step.seconds:.9g}", int(step.in_time), int(step.late),
                         level.energy, int(step.right), step.differing])
    return text.getvalue()


def plot(found: Discharge, title: Sequence[str]) -> "Figure":
    """Charge and level over the inferences, and the share of answers that are right up to each."""
    figure = new_figure(9, 6)
    charge, levels = figure.subplots(2, sharex=True)
    names = [plain(level.name, _LONGEST) for level in found.table.levels]
    places = {level.name: number for number, level in enumerate(found.table.levels)}
    across = range(len(found.steps))
    charge.plot(across, [step.charge_ppm / 1e4 for step in found.steps], label="charge")
    right, shares = 0, []
    for number, step in enumerate(found.steps):
        right += step.right
        shares.append(100 * right / (number + 1))
    charge.plot(across, shares, linewidth=0.8, label="right answers so far")
    for level in found.table.levels:
        if found.table.plan.kind == "thresholds" and level.above_ppm:
            charge.axhline(level.above_ppm / 1e4, color="black", linewidth=0.5, linestyle=":")
    charge.axvline(found.fixed, color="black", linewidth=0.8, linestyle="--", label="the first level alone ends")
    charge.set(ylabel="%", ylim=(0, 105))
    charge.legend(fontsize="small")
    levels.step(across, [places[step.level.name] for step in found.steps], where="post")
    missed = [number for number, step in enumerate(found.steps) if not step.in_time]
    levels.plot(missed, [places[found.steps[number].level.name] for number in missed], "rx", label="deadline missed")
    levels.set(xlabel="inferences", ylabel="level", ylim=(len(names) - 0.5, -0.5))
    levels.set_yticks(range(len(names)), names, fontsize="x-small")
    if missed:
        levels.legend(fontsize="small")
    charge.set_title(title_of(title), fontsize="medium")
    return figure
