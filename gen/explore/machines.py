"""Integer machines as a problem: cycles by the time model, area by `gen.hw.area`, what pruning costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boards.board import Board
from boards.clock import Clock
from cores.config import ConfigError, NpuConfig
from gen.families.registry import get_family
from gen.hw.area import Area, area_of, exceeded
from gen.hw.clock import clock_of
from gen.passes.prune import rounded_density

from .errors import ExploreError
from .evaluation import Evaluation, Job, Objective, Result
from .meter import MachineMeter, job_content
from .parameters import BOARD_CLOCK, DEFAULTS, IDEAL, config_of
from .space import Point, Space, Value

__all__ = ["MachineProblem", "default_objectives", "known_objectives"]

#: Of a machine that cannot be built or cannot compute the model: further from a solution than one that is too large.
_IMPOSSIBLE = 100.0
#: A fusion of two layers is tried out before it is chosen: mapping takes several times as long.
_FUSION_WEIGHT = 5.0


def known_objectives(board: Board) -> dict[str, Objective]:
    """By name; those of the device have its names."""
    device = {name: Objective(name) for name in get_family(board.family).resources}
    others = (Objective("cycles"), Objective("ms", "ms"), Objective("bus_bytes", "bytes"), Objective("area", "%"),
              Objective("kept", largest=True), Objective("accuracy", largest=True))
    return {**{one.name: one for one in others}, **device}


def default_objectives(space: Space, *, judged: bool) -> tuple[str, ...]:
    """Time and area, and what pruning costs if that is varied."""
    time = "ms" if "clock" in space.axes else "cycles"
    cost = ("accuracy",) if judged else ("kept",)
    return (time, "area", *(cost if "density" in space.varied else ()))


@dataclass(frozen=True, eq=False)
class _Machine:
    """What is known of a point without measuring. ``problems``: why it is no solution."""

    config: NpuConfig
    clock: Clock
    density: float
    memory: str
    area: Area
    problems: tuple[str, ...]


class MachineProblem:
    """`gen.explore.evaluation.Problem`: models on the machines of a space, on a board.

    With several models cycles, traffic and multiplications are those of one inference of each; ``kept`` and
    ``accuracy`` are means. Raises ExploreError for an objective that there is none of.
    """

    def __init__(self, space: Space, board: Board, meter: MachineMeter, objectives: Sequence[str] = ()) -> None:
        self.space, self.board, self.meter = space, board, meter
        known, self.judged = known_objectives(board), meter.judgement is not None
        chosen = objectives or default_objectives(space, judged=self.judged)
        unknown = next((name for name in chosen if name not in known), None)
        if unknown is not None:
            raise ExploreError(f"no objective {unknown!r}; there are {', '.join(known)}", code="unknown-name")
        if "accuracy" in chosen and not self.judged:
            raise ExploreError("the objective accuracy needs samples to judge by: --input X.npz")
        self.objectives = [known[name] for name in chosen]

    def _value(self, point: Point, name: str) -> Value:
        return point.get(name, DEFAULTS[name])

    def _machine(self, point: Point) -> _Machine:
        """Raises ConfigError."""
        config = config_of(self.board, point)
        clock, area = self._value(point, "clock"), area_of(config, self.board.family)
        return _Machine(
            config, clock_of(self.board, config) if clock == BOARD_CLOCK else Clock(float(clock), "given"),
            rounded_density(float(self._value(point, "density")), config), str(self._value(point, "memory")), area,
            tuple(area.too_much(self.board)))

    def jobs(self, point: Point) -> Sequence[Job]:
        """One for each model; none for what cannot be built, or does not fit the board."""
        try:
            machine = self._machine(point)
        except ConfigError:
            return ()
        if machine.problems:
            return ()
        mhz = None if machine.memory == IDEAL else machine.clock.mhz
        weight = _FUSION_WEIGHT if machine.config.local_store else 1.0
        return [Job(job_content(model, machine.config, machine.density, machine.memory, mhz, self.judged),
                    f"{model.digest} {machine.config.to_json()} {machine.density}", weight)
                for model in self.meter.models]

    def evaluation(self, point: Point, results: Sequence[Result]) -> Evaluation:
        """Of a machine that is too large the area alone is known."""
        try:
            machine = self._machine(point)
        except ConfigError as error:
            return Evaluation(point, {}, infeasible=(str(error),), excess=_IMPOSSIBLE)
        totals, resources = machine.area.totals, self.board.resources
        shares = [count / resources[name] for name, count in totals.items()]
        figures, facts = {**totals, "area": 100 * sum(shares) / len(shares)}, self._facts(machine)
        if machine.problems:
            return Evaluation(point, figures, facts, tuple(f"does not fit: {text}" for text in machine.problems),
                              max(shares))
        refused = tuple(dict.fromkeys(result["refused"] for result in results if "refused" in result))
        if refused:
            return Evaluation(point, figures, facts, refused, _IMPOSSIBLE)
        return Evaluation(point, {**figures, **_measured(results, machine.clock)}, facts)

    def _facts(self, machine: _Machine) -> dict[str, Any]:
        config = machine.config
        return {
            "mac_lanes": config.macs, "config": config.to_dict(), "density_used": machine.density,
            "clock_mhz": machine.clock.mhz, "clock_basis": machine.clock.basis, "area_error": machine.area.error,
            "area_known": machine.area.known, "area_now": machine.area.now,
            # More than there is, but not by more than the error of the reckoning.
            "tight": exceeded(machine.area.on(self.board), self.board),
        }


def _measured(results: Sequence[Result], clock: Clock) -> Mapping[str, float]:
    sums = {name: sum(result[name] for result in results) for name in ("cycles", "bus_bytes")}
    sums |= {f"model_{name}": sum(result[name] for result in results) for name in ("macs", "useful_macs")}
    means = {name: sum(result[name] for result in results) / len(results) for name in ("kept", "accuracy")
             if all(name in result for result in results)}
    return {**sums, "ms": 1000 / clock.per_second(sums["cycles"]), **means}
