"""The page of `gen explore`: the points of a search, its front, and what is known of each."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from gen.explore.evaluation import Evaluation
from gen.explore.report import Found
from gen.report.sheet import Bars, Column, Facts, Part, Point, Points, Section, Sheet, Table, repeat

__all__ = ["search_sheet"]

#: What a figure is, where its name does not say it.
_UNITS = {"area": "% of the device", "ms": "ms", "accuracy": "share", "kept": "share"}


def search_sheet(name: str, found: Found, facts: Mapping[str, Any], *, command: str = "") -> Sheet:
    """Of the search ``found`` for what is called ``name``; ``facts`` of it as `Found.to_dict` has them: board, method,
    seed, size."""
    goals = found.objectives
    feasible = [one for one in found.evaluations if one.feasible]
    units = {figure: _UNITS.get(figure, "") for figure in found.figures}
    units |= {goal.name: goal.unit or units.get(goal.name, "") for goal in goals}
    names = [*(goal.name for goal in goals), "area", *units]
    best = set(found.front)
    points = [Point(parameters=_words(one), figures=dict(one.figures), facts=_facts(one), front=number in best)
              for number, one in enumerate(found.evaluations) if one.feasible]
    x, y = list(dict.fromkeys(figure for figure in names if figure in units))[:2] if len(units) > 1 else (names[0],) * 2
    words = [axis for axis in found.space.varied if any(isinstance(one, str) for one in found.space.axes[axis])]
    cards = [(f"{len(best)}", "points on the front"), (f"{len(feasible)}", "feasible points"),
             (f"{len(found.evaluations):,} of {found.space.size:,}", "points looked at"),
             *(_card(found, number) for number in range(len(goals)))]
    plane = [Points(label=f"Points by {x} and {y}; the list and the table have the same", points=points, units=units,
                    x=x, y=y, colour=next(iter([*words, *found.space.varied]), "nothing"), step=len(goals) == 2)]
    sections = [Section(title="The trade-off", blocks=plane if points else [], note="Every feasible point. "
                        + ", ".join(f"{goal.name}: the {'more' if goal.largest else 'less'} the better"
                                    for goal in goals) + ". area: the mean of the shares of the "
                        "device's resources."),
                Section(title="Table", note="All points; those of the front stand out. Select a heading to sort.",
                        blocks=[_table(found, best)])]
    reasons = Counter(one.infeasible[0] for one in found.evaluations if not one.feasible)
    if reasons:
        sections.append(Section(title="What is no solution", note="Points by the first reason against them.", blocks=[
            Bars(label="Infeasible points by reason", names=list(reasons), axis="points",
                 parts=[Part(name="points", role="rest", values=list(reasons.values()))])]))
    sections.append(Section(title="The search", blocks=[Facts(rows=[
        *((key, str(value)) for key, value in facts.items() if isinstance(value, str | int)),
        *((axis, ", ".join(map(str, values))) for axis, values in found.space.axes.items())])]))
    return Sheet(name=name, note=f"on {facts['board']}, by {', '.join(goal.name for goal in goals)}{_clock(feasible)}",
                 cards=cards, findings=_findings(found, units), sections=[*sections, repeat(command)])


def _clock(points: list[Evaluation]) -> str:
    clocks = {(one.facts["clock_mhz"], one.facts["clock_basis"]) for one in points if "clock_mhz" in one.facts}
    return "".join(f"; {mhz:g} MHz, {basis}" for mhz, basis in clocks) if len(clocks) == 1 else ""


def _words(one: Evaluation) -> dict[str, str]:
    return {name: str(value) for name, value in one.point.items()}


def _facts(one: Evaluation) -> dict[str, str]:
    found: dict[str, str] = {}
    if "clock_mhz" in one.facts:
        found["clock"] = f"{one.facts['clock_mhz']:g} MHz, {one.facts['clock_basis']}"
    if "area_known" in one.facts:
        found["area is known"] = one.facts["area_known"]
    if one.facts.get("tight"):
        found["perhaps too large"] = ", ".join(one.facts["tight"])
    return found


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def _best(found: Found, number: int) -> Evaluation | None:
    """The point that is best by an objective."""
    goal = found.objectives[number]
    known = [one for one in found.evaluations if one.feasible and goal.name in one.figures]
    return min(known, key=lambda one: goal.loss(one.figures[goal.name]), default=None)


def _card(found: Found, number: int) -> tuple[str, str]:
    goal, one = found.objectives[number], _best(found, number)
    unit = goal.unit or _UNITS.get(goal.name, "")
    return ("none" if one is None else f"{_number(one.figures[goal.name])} {unit}".strip(), f"{goal.name}, at best")


def _findings(found: Found, units: Mapping[str, str]) -> list[str]:
    said = []
    for number, goal in enumerate(found.objectives):
        one = _best(found, number)
        if one is not None:
            at = ", ".join(f"{name} {one.point[name]}" for name in found.space.varied) or "the only point"
            rest = ", ".join(f"{other.name} {_number(one.figures[other.name])} {units[other.name]}".strip()
                             for other in found.objectives if other is not goal and other.name in one.figures)
            said.append(f"Best by {goal.name}: {at}: {_number(one.figures[goal.name])} {units[goal.name]}".rstrip()
                        + (f", {rest}." if rest else "."))
    return said or ["No point is feasible; below is why."]


def _table(found: Found, best: set[int]) -> Table:
    axes, figures = found.space.varied or tuple(found.space.axes), found.figures
    rows = [[*(_cell(one.point[axis]) for axis in axes), *(one.figures.get(name) for name in figures),
             _facts(one).get("clock", ""), "; ".join(one.infeasible) or ("front" if number in best else "")]
            for number, one in enumerate(found.evaluations)]
    plain = [all(isinstance(one.point[axis], int | float) for one in found.evaluations) for axis in axes]
    return Table(label="Points of the search", rows=rows, marked=sorted(best), columns=[
        *(Column(name=axis, number=number) for axis, number in zip(axes, plain, strict=True)),
        *(Column(name=name) for name in figures), *(Column(name=name, number=False) for name in ("clock", "verdict"))])


def _cell(value: Any) -> str | float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
