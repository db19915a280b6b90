"""What a search has found, as plain values and as CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .evaluation import Evaluation, Objective
from .pareto import front
from .space import Space

__all__ = ["Found"]


@dataclass(frozen=True, eq=False)
class Found:
    """The evaluations of a search, and by which objectives they are judged."""

    space: Space
    objectives: Sequence[Objective]
    evaluations: Sequence[Evaluation]

    @cached_property
    def front(self) -> list[int]:
        """Numbers of the evaluations that no other one beats."""
        return front(self.evaluations, self.objectives)

    @property
    def figures(self) -> list[str]:
        """The names of all figures, the objectives first."""
        names = [objective.name for objective in self.objectives]
        return list(dict.fromkeys([*names, *(name for one in self.evaluations for name in one.figures)]))

    def to_dict(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Ready for JSON, ``facts`` of the search first: the same for the same search, wherever and however done."""
        best = set(self.front)
        return {
            **facts, "space": {name: list(values) for name, values in self.space.axes.items()},
            "objectives": [{"name": one.name, "unit": one.unit, "goal": "largest" if one.largest else "smallest"}
                           for one in self.objectives],
            "points": [{"parameters": dict(one.point), "feasible": one.feasible, "front": number in best,
                        "infeasible": list(one.infeasible), "figures": dict(one.figures), **one.facts}
                       for number, one in enumerate(self.evaluations)],
            "front": self.front,
        }

    def csv(self) -> str:
        """A line a point: parameters, figures, facts in a word, whether it is on the front, why it is no solution."""
        best, text = set(self.front), io.StringIO()
        words = dict.fromkeys(name for one in self.evaluations for name, value in one.facts.items()
                              if isinstance(value, str | int | float))
        columns = [name for name in [*self.figures, *words] if name not in self.space.axes]
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*self.space.axes, *columns, "front", "infeasible"])
        for number, one in enumerate(self.evaluations):
            known = {**one.facts, **one.figures}
            writer.writerow([*one.point.values(), *(known.get(name, "") for name in columns), int(number in best),
                             "; ".join(one.infeasible)])
        return text.getvalue()
