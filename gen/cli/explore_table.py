"""What `gen explore` has found, on the terminal."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from gen.cli.common import console

if TYPE_CHECKING:
    from gen.explore.evaluation import Evaluation
    from gen.explore.report import Found

__all__ = ["show"]

#: Characters of a reason why points are infeasible.
_LONGEST = 120
#: Figures that are shown only where they are objectives.
_ASIDE = ("model_macs", "model_useful_macs", "bus_bytes", "kept", "accuracy")


def show(found: "Found", *, every: bool) -> None:
    """The front, or all points, as a table, and why points are infeasible."""
    best = set(found.front)
    numbers = list(range(len(found.evaluations))) if every else found.front
    shown = [found.evaluations[number] for number in numbers]
    marks = [_mark(one, best=every and number in best) for number, one in zip(numbers, shown, strict=True)]
    _table(found, shown, marks)
    feasible = sum(one.feasible for one in found.evaluations)
    console.print(f"front: {len(best)} of {feasible} feasible points, by "
                  f"{', '.join(objective.name for objective in found.objectives)}; looked at "
                  f"{len(found.evaluations):,} of {found.space.size:,} points", soft_wrap=True)
    if any("~" in mark for mark in marks):
        console.print("~: reckoned to take more than the device has, by less than the reckoning's error",
                      soft_wrap=True)
    if not all(one.facts.get("area_now", True) for one in shown):
        console.print("area: reckoned from machines of an earlier state of the hardware", soft_wrap=True)
    reasons = Counter(one.infeasible[0] for one in found.evaluations if not one.feasible)
    for reason, count in reasons.most_common():
        short = reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}..."
        console.print(f"infeasible, {count}: {short}", soft_wrap=True)


def _mark(one: "Evaluation", *, best: bool) -> str:
    if not one.feasible:
        return "infeasible"
    return " ".join(filter(None, ("front" * best, "~" * bool(one.facts.get("tight")))))


def _table(found: "Found", shown: Sequence["Evaluation"], marks: Sequence[str]) -> None:
    axes = found.space.varied or tuple(found.space.axes)
    goals = [objective.name for objective in found.objectives]
    figures = [name for name in found.figures if name in goals or name not in _ASIDE]
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in axes:
        table.add_column(heading, overflow="fold")
    for heading in figures:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("clock", overflow="fold")
    table.add_column("", no_wrap=True)
    for one, mark in zip(shown, marks, strict=True):
        clock = f"{one.facts['clock_mhz']:g} MHz, {one.facts['clock_basis']}" if one.facts else ""
        table.add_row(*(f"{one.point[name]}" for name in axes), *(_figure(one.figures.get(name)) for name in figures),
                      clock, mark)
    console.print(table)


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
