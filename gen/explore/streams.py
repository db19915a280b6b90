"""Stochastic networks as a problem: backbone, circuit and a length of streams for each level, by a reward."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from cores.arch.stochastic import Circuit
from cores.config import NpuConfig
from gen.energy.battery import Setting, discharge
from gen.energy.candidate import CHEAPEST_FIRST, Candidate
from gen.energy.unit_energy import UnitEnergy
from gen.stochastic.backbone import Backbone
from gen.stochastic.cycles import estimated_cycles, layer_cycles
from gen.stochastic.errors import BackboneError

from .errors import ExploreError
from .evaluation import Evaluation, Job, Objective, Result
from .space import Point, Space
from .stream_machine import refusal
from .stream_meter import StreamMeter, accuracy_content, energy_content
from .task import Task

__all__ = ["REWARD", "StreamProblem", "known_objectives"]

REWARD = "reward"

#: Accuracies that are normalised to 0 and 1.
_LEAST, _MOST = 0.60, 0.98
#: Less of the reward where a faster level is not the more accurate one.
_PENALTY = 0.1
#: Inferences of the cheapest point, whatever its accuracy: the battery is that large.
_RUNS = 1_000_000
#: Of mapping a circuit, which is more than any group of accuracies has: what many points wait for begins first.
_MAPPING = 1e9
#: `Evaluation.excess` of what is no network, or none for the machine.
_IMPOSSIBLE = 1e6

_CIRCUITS = {circuit.label: circuit for circuit in Circuit}


def known_objectives() -> dict[str, Objective]:
    """By name."""
    return {one.name: one for one in (Objective(REWARD, largest=True), Objective("inferences", largest=True),
                                      Objective("accuracy", largest=True))}


@dataclass(frozen=True, eq=False)
class StreamProblem:
    """`gen.explore.evaluation.Problem`: a task on a machine, whose units take the energies that they have on the
    devices of ``family``.

    Figures: ``reward``; ``inferences`` of a battery that is enough for a million of the cheapest point of the space, on
    the first of `CHEAPEST_FIRST` that is there; ``accuracy``, the mean over the inferences; of each level ``ms_NAME``
    and ``accuracy_NAME``. A circuit is mapped when a point needs it. Networks that the compiler refuses for the machine
    are no solutions; that is asked of those that meet the deadline, if ``compiled``. Raises ExploreError for objectives
    that there are none of.
    """

    task: Task
    config: NpuConfig
    family: str
    meter: StreamMeter
    chosen: Sequence[str] = (REWARD,)
    compiled: bool = True
    _networks: dict[str, Backbone | str] = field(default_factory=dict, init=False)
    _refusals: dict[tuple[str, str], str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        unknown = next((name for name in self.chosen if name not in known_objectives()), None)
        if unknown is not None:
            raise ExploreError(f"no objective {unknown!r}; there are {', '.join(known_objectives())}",
                               code="unknown-name")

    @cached_property
    def objectives(self) -> list[Objective]:
        return [known_objectives()[name] for name in self.chosen]

    @cached_property
    def space(self) -> Space:
        lengths = {f"length_{level.name}": self.task.lengths for level in self.task.table.used}
        networks = {"backbone": self.task.backbones} if self.task.layers is None else self.task.layers.axes
        return Space({**networks, "circuit": self.task.circuits, **lengths},
                     {} if self.task.layers is None else self.task.layers.needs)

    @cached_property
    def _cheapest(self) -> str:
        """The circuit that the battery is reckoned by."""
        return next(circuit.label for circuit in CHEAPEST_FIRST if circuit.label in self.task.circuits)

    def _word(self, point: Point) -> str:
        return str(point["backbone"]) if self.task.layers is None else self.task.layers.word(point)

    def _network(self, point: Point) -> Backbone | str:
        """Or why it is none."""
        word = self._word(point)
        if word not in self._networks:
            try:
                self._networks[word] = Backbone(word)
            except BackboneError as error:
                self._networks[word] = str(error).removeprefix(f"{word}: ")
        return self._networks[word]

    def _refusal(self, backbone: Backbone, circuit: str) -> str:
        """Why the compiler does not take a network; "" where it does, or is not asked."""
        if not self.compiled:
            return ""
        if (backbone.word, circuit) not in self._refusals:
            self._refusals[backbone.word, circuit] = refusal(backbone, self.config, _CIRCUITS[circuit])
        return self._refusals[backbone.word, circuit]

    def _settings(self, backbone: Backbone, point: Point, accuracy: Mapping[int, float] | None = None,
                  per_cycle: float = 1.0) -> list[Setting]:
        lengths = [int(point[f"length_{level.name}"]) for level in self.task.table.used]
        return [Setting(level.above or 0.0, level, length, estimated_cycles(backbone, length, self.config),
                        0.0 if accuracy is None else accuracy[length], per_cycle)
                for level, length in zip(self.task.table.used, lengths, strict=True)]

    @cached_property
    def _least(self) -> float:
        """Energy of an inference of the cheapest point whose circuit takes 1 in a cycle."""
        length, layers = min(self.task.lengths), self.task.layers
        if layers is None:
            cycles = min(estimated_cycles(Backbone(word), length, self.config) for word in self.task.backbones)
        else:
            found = layers.cheapest(lambda layer: layer_cycles(layer, length, self.config))
            assert found is not None    # the axes have an example
            cycles = int(found[0])
        return _mean_energy([Setting(level.above or 0.0, level, length, cycles, 0.0, 1.0)
                             for level in self.task.table.used])

    def _late(self, settings: Sequence[Setting]) -> list[Setting]:
        return [one for one in settings if not one.level.meets(self.task.deadline_ms / 1000, one.cycles)]

    def _energies(self, point: Point) -> Mapping[str, Job]:
        """Of its circuit, and of the one that the battery is reckoned by."""
        return {name: Job(energy_content(name, self.family), f"unit {name}", _MAPPING, f"mapping {name}")
                for name in (str(point["circuit"]), self._cheapest)}

    def jobs(self, point: Point) -> Sequence[Job]:
        """Energies, and an accuracy for each length; no accuracies of points that miss the deadline, or that the
        machine does not have.
        """
        backbone, name = self._network(point), str(point["circuit"])
        if isinstance(backbone, str):
            return []
        settings = self._settings(backbone, point)
        unknown = not self._late(settings) and not self._refusal(backbone, name)
        lengths = dict.fromkeys(one.length for one in settings) if unknown else ()
        return [*self._energies(point).values(), *(Job(accuracy_content(backbone.word, name, length), backbone.word,
                                                       float(length)) for length in lengths)]

    def evaluation(self, point: Point, results: Sequence[Result]) -> Evaluation:
        backbone = self._network(point)
        facts = {} if self.task.layers is None else {"backbone": self._word(point)}
        if isinstance(backbone, str):
            return Evaluation(point, {REWARD: -1.0}, facts, (backbone,), _IMPOSSIBLE)
        energies = self._energies(point)
        per_cycle = {name: Candidate(backbone, _CIRCUITS[name], UnitEnergy(**result), self.config).per_cycle
                     for name, result in zip(energies, results, strict=False)}
        lengths = dict.fromkeys(one.length for one in self._settings(backbone, point))
        accuracy = {length: float(result["accuracy"])
                    for length, result in zip(lengths, results[len(per_cycle):], strict=False)}
        settings = self._settings(backbone, point, accuracy or None, per_cycle[str(point["circuit"])])
        run = discharge(_RUNS * self._least * per_cycle[self._cheapest], settings)
        figures = {"inferences": run.inferences, **{f"ms_{one.level.name}": 1000 * one.seconds for one in settings}}
        runs = run.inferences / _RUNS
        if late := self._late(settings):
            reasons = tuple(f"{one.level.name} misses the deadline" for one in late)
            excess = max(one.seconds for one in late) * 1000 / self.task.deadline_ms
            return Evaluation(point, {REWARD: runs - 1, **figures}, facts, reasons, excess)
        if refused := self._refusal(backbone, str(point["circuit"])):
            return Evaluation(point, {REWARD: -1.0, **figures}, facts, (refused,), _IMPOSSIBLE)
        figures |= {"accuracy": run.accuracy, **{f"accuracy_{one.level.name}": one.accuracy for one in settings}}
        short = [(one, bound - one.accuracy) for one, bound in zip(settings, self.task.shares, strict=True)
                 if one.accuracy < bound]
        if short:
            reasons = tuple(f"{one.level.name} is not accurate enough" for one, _ in short)
            return Evaluation(point, {REWARD: runs - 1, **figures}, facts, reasons, max(lack for _, lack in short))
        return Evaluation(point, {REWARD: _reward(settings, runs), **figures}, facts)


def _reward(settings: Sequence[Setting], runs: float) -> float:
    """Of a feasible point: normalised accuracy, the mean over the levels, and runs."""
    normal = [min(1.0, max(0.0, (one.accuracy - _LEAST) / (_MOST - _LEAST))) for one in settings]
    falls = all(fast.accuracy > slow.accuracy for fast, slow in zip(settings, settings[1:], strict=False))
    return sum(normal) / len(normal) + runs - (0 if falls else _PENALTY)


def _mean_energy(settings: Sequence[Setting]) -> float:
    """Of the inferences that empty a battery."""
    bounds = [1.0, *(one.above for one in settings)]
    return 1 / sum((full - one.above) / one.energy for full, one in zip(bounds, settings, strict=False))
