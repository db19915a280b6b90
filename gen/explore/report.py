"""What a search has found, the best trade-offs among it, as plain values and as CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .evaluation import Evaluation, Objective
from .space import Space

__all__ = ["Found", "front"]


def front(evaluations: Sequence[Evaluation], objectives: Sequence[Objective]) -> list[int]:
    """Numbers of the feasible points that none is at least as good as in every objective, and better in one.

    In the order of the first objective, the best first. Of points with the same figures all are in it.
    """
    numbers = [number for number, one in enumerate(evaluations) if one.feasible]
    losses = np.array([[goal.loss(evaluations[number].figures[goal.name]) for goal in objectives]
                       for number in numbers]).reshape(len(numbers), len(objectives))
    best = [number for number, mine in zip(numbers, losses, strict=True)
            if not ((losses <= mine).all(axis=1) & (losses < mine).any(axis=1)).any()]
    rank = dict(zip(numbers, losses.tolist(), strict=True))
    return sorted(best, key=lambda number: (rank[number], number))


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
