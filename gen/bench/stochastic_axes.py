"""Searches of networks by the axes of their layers: controller, Optuna and chance at equal evaluations.

Accuracies are assumed (`gen.explore.assumed`): thousands of networks are looked at, and none is trained.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cores.config import NpuConfig
from gen.explore.assumed import AssumedMeter
from gen.explore.controller import ControllerSettings
from gen.explore.convergence import best_so_far
from gen.explore.evaluation import Evaluation
from gen.explore.ledger import Ledger
from gen.explore.methods import Name, chosen_method
from gen.explore.search import search
from gen.explore.streams import REWARD, StreamProblem
from gen.explore.task import Task
from gen.explore.workers import Here

__all__ = ["EVALUATIONS", "MARKS", "METHODS", "SEEDS", "SPACES", "AxesRow", "measure_axes"]

#: Of examples/stochastic.
SPACES = ("mlp_layers", "lenet", "alexnet")
#: With the controller as it is published, and with its 0.99 taken for a discount, which it may have been.
METHODS: Mapping[str, tuple[Name, ControllerSettings]] = {
    "controller": ("controller", ControllerSettings()),
    "discounted": ("controller", ControllerSettings(rate=0.1, discount=0.99)),
    "optuna": ("optuna", ControllerSettings()),
    "random": ("random", ControllerSettings()),
}
SEEDS = range(5)
MARKS = (35, 70, 140, 350)
EVALUATIONS = MARKS[-1]


@dataclass(frozen=True)
class AxesRow:
    """``best``: reward after so many different points, the mean over the seeds; ``least`` of them at the end.

    ``evaluations``: that the seeds took in the mean; ``feasible``: the share of them that were solutions. ``found``:
    the best point of all seeds, in words.
    """

    space: str
    method: str
    evaluations: float
    best: Mapping[int, float]
    least: float
    feasible: float
    found: str


def measure_axes(tasks: Mapping[str, Task], family: str, remark: Callable[[str], None] = lambda step: None
                 ) -> Iterator[AxesRow]:
    """A row for each space and method. Raises ExploreError without PyTorch or Optuna, and what `measure_energy` does.
    """
    meter = AssumedMeter()
    ledger = Ledger(meter.identity, None)
    for space, task in tasks.items():
        problem = StreamProblem(task, NpuConfig.preset(task.macs), family,
                                meter, compiled=False)  # type: ignore[arg-type]  # a meter of the same results
        for method, (name, settings) in METHODS.items():
            runs = []
            for seed in SEEDS:
                remark(f"{space}: {method}, seed {seed}")
                _, chosen = chosen_method(name, problem, EVALUATIONS, seed, settings)
                runs.append(search(problem, chosen, Here(meter), ledger))
            yield _row(space, method, problem, runs)


def _row(space: str, method: str, problem: StreamProblem, runs: Sequence[Sequence[Evaluation]]) -> AxesRow:
    (goal,) = problem.objectives
    curves = [best_so_far(run, goal) for run in runs]
    best = {mark: sum(curve[min(mark, len(curve)) - 1] for curve in curves) / len(curves) for mark in MARKS}
    every = [one for run in runs for one in run]
    return AxesRow(space, method, len(every) / len(runs), best, min(curve[-1] for curve in curves),
                   sum(one.feasible for one in every) / len(every),
                   _words(max(every, key=lambda one: one.figures[REWARD])))


def _words(one: Evaluation) -> str:
    lengths = "/".join(str(value) for name, value in one.point.items() if name.startswith("length_"))
    return f"{one.facts.get('backbone', one.point.get('backbone'))}, {one.point['circuit']}, {lengths} bits"
