"""Searches of stochastic networks: the published controller, Optuna and chance, by the evaluations that they take."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from gen.explore.convergence import best_so_far
from gen.explore.evaluation import Problem
from gen.explore.ledger import Ledger
from gen.explore.methods import Name, chosen_method
from gen.explore.search import Workers, search

__all__ = ["EVALUATIONS", "METHODS", "SEEDS", "SPACE", "Convergence", "SearchRow", "measure_searches", "rows_of"]

#: The space that is searched.
SPACE = Path(__file__).with_name("stochastic_search.json")
METHODS: tuple[Name, ...] = ("controller", "optuna", "random")
SEEDS = range(5)
#: Different points: about as many as the controller looks at until it ends; and fewer, to see who is quick.
EVALUATIONS = 700
_MARKS = (35, 70, 140, 280, EVALUATIONS)


@dataclass(frozen=True)
class Convergence:
    """The best reward after the first, the second, ... evaluation of a method with a seed."""

    method: str
    seed: int
    rewards: Sequence[float]


@dataclass(frozen=True)
class SearchRow:
    """``best``: after so many evaluations, the mean over the seeds; ``least`` of them. None: it had ended before.

    ``evaluations``: that the seeds took in the mean; ``found``: in how many of them the best point of the space was.
    """

    method: str
    evaluations: float
    best: Mapping[int, float]
    least: float
    found: int


def measure_searches(problem: Problem, workers: AbstractContextManager[Workers], ledger: Ledger,
                     remark: Callable[[str], None] = lambda step: None) -> Iterator[Convergence]:
    """All points first, as ``grid``, then each method with each seed, which measure nothing anew.

    Raises what the workers and `chosen_method` do.
    """
    (goal,) = problem.objectives
    with workers as hands:
        for name, seed in (("grid", 0), *((name, seed) for name in METHODS for seed in SEEDS)):
            remark(f"{name}, seed {seed}")
            _, method = chosen_method(name, problem, EVALUATIONS, seed)
            yield Convergence(name, seed, best_so_far(search(problem, method, hands, ledger), goal))


def rows_of(curves: Sequence[Convergence]) -> list[SearchRow]:
    """Of each method."""
    (grid,) = (curve for curve in curves if curve.method == "grid")
    optimum = grid.rewards[-1]
    rows = [SearchRow("grid", len(grid.rewards), {}, optimum, 1)]
    for name in METHODS:
        mine = [curve.rewards for curve in curves if curve.method == name]
        best = {mark: sum(rewards[min(mark, len(rewards)) - 1] for rewards in mine) / len(mine) for mark in _MARKS}
        rows.append(SearchRow(name, sum(map(len, mine)) / len(mine), best, min(rewards[-1] for rewards in mine),
                              sum(rewards[-1] >= optimum for rewards in mine)))
    return rows
