"""Which points of a space are looked at, round by round."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from .errors import ExploreError
from .evaluation import Evaluation, Problem
from .space import Point

if TYPE_CHECKING:
    from .controller import ControllerSettings

__all__ = ["METHODS", "Listed", "Method", "chosen_method"]

Name = Literal["auto", "grid", "random", "optuna", "controller"]
METHODS: tuple[Name, ...] = ("auto", "grid", "random", "optuna", "controller")


#: Points of a search: those that a space without measure would have are not listed.
_MOST = 100_000


class Method(Protocol):
    """Chooses points; what it chooses depends on the evaluations that it is given, and on nothing else."""

    def next(self, found: Sequence[Evaluation]) -> Sequence[Point]:
        """The next points, none at the end; ``found``: those of all the rounds before, in order."""


class Listed:
    """Points that are chosen before any is known, in one round."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._points = points

    def next(self, found: Sequence[Evaluation]) -> Sequence[Point]:
        return () if found else self._points


def chosen_method(name: Name, problem: Problem, evaluations: int, seed: int,
                  settings: "ControllerSettings | None" = None) -> tuple[Name, Method]:
    """The method of a name, for so many points; ``auto`` is the whole grid where that has no more, else ``random``.
    ``settings``: of the controller, as published unless given.

    Raises ExploreError for more points than can be listed, and for a method whose package is missing.
    """
    space = problem.space
    points = space.size if name == "grid" else min(evaluations, space.size)
    if points > _MOST:
        raise ExploreError(f"{points:,} points are too many; at most {_MOST:,} are looked at: take --method random or "
                           "optuna with --evaluations, or a smaller space")
    if name == "auto":
        name = "grid" if space.size <= evaluations else "random"
    if name == "grid":
        return name, Listed([space.point(number) for number in range(space.size)])
    if name == "random":
        return name, Listed(space.sample(evaluations, seed))
    if name == "controller":
        from .controller import Controller, ControllerSettings

        return name, Controller(problem, evaluations, seed, settings or ControllerSettings())
    from .evolution import Evolution

    return name, Evolution(problem, evaluations, seed)
