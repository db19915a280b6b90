"""The machine for a model: which preset of so many MACs, with which units, by the time model and the area model.

Of each purpose that it is chosen from (`MODEL_PURPOSES`), the machine begins with all units that fit the board and
loses those that do not pay. The fastest of these machines is chosen; of several that are about as fast, the smallest.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

from boards.board import Board
from cores.config import FEATURES, MODEL_PURPOSES, PURPOSES, TRIED_FEATURES, ConfigError
from gen.hw.area import area_of
from gen.onnx.machine import Machine

from .errors import ExploreError
from .evaluation import Evaluation, Job, Result
from .ledger import Ledger
from .machines import MachineProblem
from .meter import MachineMeter
from .models import ModelFile
from .parameters import config_of
from .search import evaluated
from .space import Point, Space, Value
from .workers import local_workers

__all__ = ["Candidate", "Choice", "choose", "choose_for"]

#: Units are left out as long as the model takes no more than this share longer without all of them.
_PAYS = 0.01
#: Machines whose times differ by no more than this share are about as fast.
_ABOUT = 0.05

#: Yields the points that it wants to know next, and is sent their evaluations.
_Search = Generator[Sequence[Point], Sequence[Evaluation], "Candidate | str"]
#: Measures points, which may take a while.
Measure = Callable[[Sequence[Point]], Sequence[Evaluation]]


@dataclass(frozen=True)
class Candidate:
    """A machine of one purpose. ``lost``: unit -> share of time that its absence adds, None where the model then has
    nodes for the processor that would be the machine's."""

    purpose: str
    features: tuple[str, ...]
    evaluation: Evaluation
    lost: Mapping[str, float | None]

    @property
    def ms(self) -> float:
        """Of an inference, on the machine alone."""
        return self.evaluation.figures["ms"]

    @property
    def area(self) -> float:
        """Mean share of the device's resources in percent."""
        return self.evaluation.figures["area"]


@dataclass(frozen=True)
class Choice:
    """What was chosen, and the best machine of each other purpose."""

    chosen: Candidate
    others: tuple[Candidate, ...]


def choose(problem: MachineProblem, point: Point, measure: Measure, purposes: Sequence[str] = MODEL_PURPOSES) -> Choice:
    """The machine for the problem's models; ``point`` says what else it is: MACs, fields given by hand, memory, clock.

    Raises ExploreError where none of the machines fits the board and computes the models.
    """
    machines = [{**point, "for": purpose} for purpose in purposes]
    searches = [_reduced(machine, tuple(_fitting(problem, machine))) for machine in machines]
    results = _side_by_side(searches, measure)
    found = [one for one in results if isinstance(one, Candidate)]
    if not found:
        raise ExploreError("; ".join(dict.fromkeys(reason for reason in results if isinstance(reason, str))))
    fastest = min(one.ms for one in found)
    chosen = min((one for one in found if one.ms <= (1 + _ABOUT) * fastest), key=lambda one: one.area)
    return Choice(chosen, tuple(one for one in found if one is not chosen))


def choose_for(model: ModelFile, board: Board, given: Mapping[str, Value], purposes: Sequence[str] = MODEL_PURPOSES, *,
               processes: int = 1) -> Choice:
    """As `choose`, of one model; ``given``: MACs and fields that are fixed. What was measured before is known, and what
    was chosen.

    Raises GraphError, ExploreError.
    """
    meter = MachineMeter([model])
    ledger = Ledger(meter.identity, Ledger.default_folder())
    asked = {"choice": model.digest, "board": repr(board), "given": dict(given), "for": list(purposes)}
    key = ledger.key(Job(asked, ""))
    if key in ledger:
        return _read(ledger[key])
    meter.model(model.digest).graphs(Machine.complete())
    problem = MachineProblem(Space({"for": list(PURPOSES)}), board, meter, ("ms", "area"))
    with local_workers(meter, min(len(purposes), processes)) as workers:
        choice = choose(problem, {**given, "memory": board.name, "clock": board.clock_mhz},
                        lambda points: evaluated(problem, points, workers, ledger), purposes)
    ledger.keep({key: {"choice": [_written(one) for one in (choice.chosen, *choice.others)]}})
    return choice


def _written(one: Candidate) -> Result:
    return {"for": one.purpose, "features": list(one.features), "lost": dict(one.lost),
            "point": dict(one.evaluation.point), "figures": dict(one.evaluation.figures)}


def _read(result: Result) -> Choice:
    """The `_written` ones."""
    chosen, *others = (
        Candidate(one["for"], tuple(one["features"]), Evaluation(one["point"], one["figures"]), one["lost"])
        for one in result["choice"])
    return Choice(chosen, tuple(others))


def _side_by_side(searches: Sequence[_Search], measure: Measure) -> list[Candidate | str]:
    """What each search comes to; points that several want next are measured together."""
    results: dict[int, Candidate | str] = {}
    wanted = {number: next(search) for number, search in enumerate(searches)}
    while wanted:
        found = iter(measure([point for points in wanted.values() for point in points]))
        answers = {number: [next(found) for _ in points] for number, points in wanted.items()}
        wanted = {}
        for number, answer in answers.items():
            try:
                wanted[number] = searches[number].send(answer)
            except StopIteration as end:
                results[number] = end.value
    return [results[number] for number in range(len(searches))]


def _fitting(problem: MachineProblem, point: Point) -> Iterator[str]:
    """Units that can be had together and fit the board, those first that come first in `FEATURES`."""
    kept: list[str] = []
    for name in TRIED_FEATURES:
        try:
            config = config_of(problem.board, _with(point, [*kept, name]))
        except ConfigError:
            continue
        if not area_of(config, problem.board.family).too_much(problem.board):
            kept.append(name)
            yield name


def _with(point: Point, features: Sequence[str]) -> Point:
    return {**point, "features": "+".join(name for name in FEATURES if name in features) or "none"}


def _reduced(point: Point, features: Sequence[str]) -> _Search:
    """The machine without those of ``features`` that do not pay, the last of them tried first; or why there is none."""
    [whole] = yield [_with(point, features)]
    if not whole.feasible:
        return "; ".join(whole.infeasible)
    kept, now, groups = tuple(features), whole, [tuple(features)]
    while groups:
        group = groups.pop()
        fewer = tuple(name for name in kept if name not in group)
        [without] = yield [_with(point, fewer)]
        if without.feasible and _longer(whole, without) <= _PAYS:
            kept, now = fewer, without
        elif len(group) > 1:
            groups += [group[:len(group) // 2], group[len(group) // 2:]]
    others = yield [_with(point, [other for other in kept if other != name]) for name in kept]
    lost = {name: _longer(now, one) if one.feasible else None for name, one in zip(kept, others, strict=True)}
    return Candidate(str(point["for"]), kept, now, lost)


def _longer(one: Evaluation, other: Evaluation) -> float:
    """The share of time that the ``other`` takes more."""
    return other.figures["ms"] / one.figures["ms"] - 1
