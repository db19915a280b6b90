"""Points by Optuna: NSGA-II, a genetic algorithm for several objectives and constraints."""

import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .errors import ExploreError
from .evaluation import Evaluation, Problem
from .space import Point

if TYPE_CHECKING:
    import optuna

__all__ = ["Evolution"]

#: Points of a generation at most: of few evaluations several generations are made.
_GENERATION = 32
_LEAST_GENERATIONS = 4
#: Points asked for, for each one that is new, before what is left is drawn at random: the population no longer changes.
_PATIENCE = 20


class Evolution:
    """``evaluations`` different points, a generation a round; each is known when the next one is made.

    A point that comes again costs nothing and is no evaluation. Raises ExploreError without the package optuna.
    """

    def __init__(self, problem: Problem, evaluations: int, seed: int) -> None:
        if find_spec("optuna") is None:
            raise ExploreError("--method optuna needs the package optuna: pip install 'npugen[explore]'; random and "
                               "grid do without", code="missing-package")
        self._problem, self._seed = problem, seed
        self._wanted = min(evaluations, problem.space.size)
        self._generation = max(2, min(_GENERATION, self._wanted // _LEAST_GENERATIONS))
        self._study = self._begun()
        #: Points asked for that Optuna has not been told about, and all that were ever chosen.
        self._asked: list[tuple[optuna.trial.Trial, Point]] = []
        self._chosen: dict[tuple[Any, ...], Point] = {}

    def _begun(self) -> "optuna.study.Study":
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.NSGAIISampler(population_size=self._generation, seed=self._seed)
        # Optuna would find it out anew for each point, from all points before.
        known: dict[str, optuna.distributions.BaseDistribution] = {
            name: optuna.distributions.CategoricalDistribution(tuple(range(len(values))))
            for name, values in sorted(self._problem.space.axes.items())}
        sampler.infer_relative_search_space = lambda study, trial: known  # type: ignore[method-assign]
        return optuna.create_study(directions=["minimize"] * len(self._problem.objectives), sampler=sampler)

    def next(self, found: Sequence[Evaluation]) -> Sequence[Point]:
        known = {tuple(one.point.values()): one for one in found}
        self._tell(known)
        new: list[Point] = []
        room = min(self._generation, self._wanted - len(self._chosen))
        asked = 0
        while len(new) < room and asked < _PATIENCE * self._generation:
            new += self._ask(known)
            asked += 1
        if len(new) < room:
            new += self._drawn(room - len(new))
        return new

    def _tell(self, known: dict[tuple[Any, ...], Evaluation]) -> None:
        """What became of the points that were asked for, in that order."""
        for trial, point in self._asked:
            one = known[tuple(point.values())]
            trial.set_constraint("excess", one.excess)
            losses = [goal.loss(one.figures[goal.name]) if goal.name in one.figures else math.inf
                      for goal in self._problem.objectives]
            self._study.tell(trial, losses)
        self._asked = []

    def _ask(self, known: dict[tuple[Any, ...], Evaluation]) -> list[Point]:
        """The point that Optuna would see next, if it is new; of one that is known it is told at once."""
        trial = self._study.ask()
        space = self._problem.space
        point = space.settled({name: values[trial.suggest_categorical(name, range(len(values)))]
                               for name, values in space.axes.items()})
        key = tuple(point.values())
        self._asked.append((trial, point))
        if key in known:
            waiting, self._asked = self._asked[:-1], self._asked[-1:]
            self._tell(known)
            self._asked = waiting
            return []
        if key in self._chosen:
            return []
        self._chosen[key] = point
        return [point]

    def _drawn(self, count: int) -> list[Point]:
        """Points at random that were not chosen yet."""
        space, drawn = self._problem.space, list[Point]()
        for point in space.sample(min(space.size, count + len(self._chosen)), self._seed):
            key = tuple(point.values())
            if key not in self._chosen and len(drawn) < count:
                self._chosen[key] = point
                drawn.append(point)
        return drawn
