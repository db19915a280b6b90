"""Stochastic networks as a problem: backbone, circuit and a length of streams for each level, by a reward."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cores.arch.stochastic import Circuit
from cores.config import NpuConfig
from gen.energy.battery import Setting, discharge
from gen.energy.candidate import Candidate
from gen.energy.units import UnitEnergy
from gen.stochastic.backbone import Backbone

from .errors import ExploreError
from .evaluation import Evaluation, Job, Objective, Result
from .space import Point, Space
from .stream_meter import StreamMeter, job_content
from .task import Task

__all__ = ["REWARD", "StreamProblem", "known_objectives"]

REWARD = "reward"

#: Accuracies that are normalised to 0 and 1.
_LEAST, _MOST = 0.60, 0.98
#: Less of the reward where a faster level is not the more accurate one.
_PENALTY = 0.1
#: Inferences of the best point of the space, whatever its accuracy: the battery is that large.
_RUNS = 1_000_000


def known_objectives() -> dict[str, Objective]:
    """By name."""
    return {one.name: one for one in (Objective(REWARD, largest=True), Objective("inferences", largest=True),
                                      Objective("accuracy", largest=True))}


@dataclass(frozen=True, eq=False)
class StreamProblem:
    """`gen.explore.evaluation.Problem`: a task on a machine, whose units take ``energies``.

    Figures: ``reward``; ``inferences`` of a battery that is enough for a million of the cheapest point of the space;
    ``accuracy``, the mean over the inferences; of each level ``ms_NAME`` and ``accuracy_NAME``. Raises ExploreError for
    objectives that there are none of.
    """

    task: Task
    config: NpuConfig
    energies: Mapping[Circuit, UnitEnergy]
    meter: StreamMeter
    chosen: Sequence[str] = (REWARD,)

    def __post_init__(self) -> None:
        unknown = next((name for name in self.chosen if name not in known_objectives()), None)
        if unknown is not None:
            raise ExploreError(f"no objective {unknown!r}; there are {', '.join(known_objectives())}")

    @cached_property
    def objectives(self) -> list[Objective]:
        return [known_objectives()[name] for name in self.chosen]

    @cached_property
    def space(self) -> Space:
        lengths = {f"length_{level.name}": self.task.lengths for level in self.task.table.used}
        return Space({"backbone": self.task.backbones, "circuit": self.task.circuits, **lengths})

    @cached_property
    def _candidates(self) -> dict[tuple[str, str], Candidate]:
        kinds = {circuit.label: circuit for circuit in Circuit}
        return {(word, name): Candidate(Backbone(word), kinds[name], self.energies[kinds[name]], self.config)
                for word in self.task.backbones for name in self.task.circuits}

    def _settings(self, point: Point, accuracy: Mapping[int, float] | None = None) -> list[Setting]:
        one = self._candidates[str(point["backbone"]), str(point["circuit"])]
        lengths = [int(point[f"length_{level.name}"]) for level in self.task.table.used]
        return [Setting(level.above or 0.0, level, length, one.cycles(length),
                        0.0 if accuracy is None else accuracy[length], one.per_cycle)
                for level, length in zip(self.task.table.used, lengths, strict=True)]

    @cached_property
    def _budget(self) -> float:
        """Relative energy of the battery."""
        cheapest = [self._settings({**dict.fromkeys(self.space.axes, min(self.task.lengths)), "backbone": word,
                                    "circuit": name}) for word, name in self._candidates]
        return _RUNS * min(_mean_energy(settings) for settings in cheapest)

    def _late(self, settings: Sequence[Setting]) -> list[Setting]:
        return [one for one in settings if not one.level.meets(self.task.deadline_ms / 1000, one.cycles)]

    def jobs(self, point: Point) -> Sequence[Job]:
        """One for each length; none for points that miss the deadline."""
        settings = self._settings(point)
        if self._late(settings):
            return ()
        word, name = str(point["backbone"]), str(point["circuit"])
        return [Job(job_content(word, name, length), word, float(length))
                for length in dict.fromkeys(one.length for one in settings)]

    def evaluation(self, point: Point, results: Sequence[Result]) -> Evaluation:
        lengths = dict.fromkeys(one.length for one in self._settings(point))
        accuracy = {length: float(result["accuracy"]) for length, result in zip(lengths, results, strict=False)}
        settings = self._settings(point, accuracy if results else None)
        run = discharge(self._budget, settings)
        figures = {"inferences": run.inferences, **{f"ms_{one.level.name}": 1000 * one.seconds for one in settings}}
        runs = run.inferences / _RUNS
        if late := self._late(settings):
            reasons = tuple(f"{one.level.name} misses the deadline" for one in late)
            excess = max(one.seconds for one in late) * 1000 / self.task.deadline_ms
            return Evaluation(point, {REWARD: runs - 1, **figures}, {}, reasons, excess)
        figures |= {"accuracy": run.accuracy, **{f"accuracy_{one.level.name}": one.accuracy for one in settings}}
        short = [(one, bound - one.accuracy) for one, bound in zip(settings, self.task.shares, strict=True)
                 if one.accuracy < bound]
        if short:
            reasons = tuple(f"{one.level.name} is not accurate enough" for one, _ in short)
            return Evaluation(point, {REWARD: runs - 1, **figures}, {}, reasons, max(lack for _, lack in short))
        return Evaluation(point, {REWARD: _reward(settings, runs), **figures})


def _reward(settings: Sequence[Setting], runs: float) -> float:
    """Of a feasible point: normalised accuracy, the mean over the levels, and runs."""
    normal = [min(1.0, max(0.0, (one.accuracy - _LEAST) / (_MOST - _LEAST))) for one in settings]
    falls = all(fast.accuracy > slow.accuracy for fast, slow in zip(settings, settings[1:], strict=False))
    return sum(normal) / len(normal) + runs - (0 if falls else _PENALTY)


def _mean_energy(settings: Sequence[Setting]) -> float:
    """Of the inferences that empty a battery."""
    bounds = [1.0, *(one.above for one in settings)]
    return 1 / sum((full - one.above) / one.energy for full, one in zip(bounds, settings, strict=False))
