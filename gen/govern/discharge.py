"""A battery that is emptied, inference by inference, on a simulated device by the driver and its governor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npudriver import Deployment, Device
from npudriver.battery import ModelledBattery
from npudriver.governed import GovernedModel
from npudriver.governor import Governor
from npudriver.levels import Level, LevelTable

from .measured import ProgramVariant, time_ns

__all__ = ["Discharge", "Step", "discharge"]


@dataclass(frozen=True)
class Step:
    """An inference. ``began``: seconds; ``charge_ppm``: before it; ``cycles``: of the device; ``in_time``: it met the
    deadline; ``late``: the governor knew that it would not. ``differing``: values that are not the reference's.
    """

    began: float
    charge_ppm: int
    level: Level
    cycles: int
    seconds: float
    in_time: bool
    late: bool
    right: bool
    differing: int


@dataclass(frozen=True)
class Discharge:
    table: LevelTable
    steps: Sequence[Step]

    @property
    def fixed(self) -> int:
        """Inferences that the same battery is enough for at the first level alone."""
        return self.table.battery // self.table.levels[0].energy

    @property
    def switches(self) -> int:
        return sum(one.level is not other.level for one, other in zip(self.steps, self.steps[1:], strict=False))

    @property
    def accuracy(self) -> float:
        """Share of right answers; 0 of none."""
        return sum(step.right for step in self.steps) / len(self.steps) if self.steps else 0.0


class _Clock:
    """Time as the levels' clocks have it, whatever the simulation's is. With a period, inferences begin at its ends."""

    def __init__(self, period_us: int) -> None:
        self.seconds, self._period, self._begun = 0.0, period_us / 1e6, 0

    def now_us(self) -> int:
        return round(self.seconds * 1e6)

    def passes(self, seconds: float) -> None:
        self._begun += 1
        self.seconds = max(self.seconds + seconds, self._period * self._begun)


def discharge(table: LevelTable, variants: Mapping[tuple[int, int], ProgramVariant], deployments: Sequence[Deployment],
              device: Device, samples: Mapping[str, np.ndarray],
              progress: Callable[[int, str], None] = lambda done, present: None) -> Discharge:
    """Samples in turn, until there is not enough for an inference at the level that is chosen, or a plan that lasts has
    come to its end. ``variants``: by program and shift, with what the outputs must be.

    Raises as `GovernedModel`.
    """
    clock, battery, governor = _Clock(table.plan.period_us), ModelledBattery(table.battery), Governor(table)
    steps: list[Step] = []
    models = [deployment.load_into(device, slots=1) for deployment in deployments]
    governed = GovernedModel(governor, models, battery, set_clock=lambda level: None, now_us=clock.now_us)
    count = len(next(iter(samples.values())))
    while not (table.plan.kind == "lasting" and clock.now_us() >= table.plan.lasts_us):
        number, left = len(steps) % count, battery.left
        made = governed.run({name: values[number] for name, values in samples.items()})
        if made.level.energy > left:
            break
        one = variants[made.level.program, made.level.shift]
        cycles = one.cycles if made.cycles is None else made.cycles
        seconds = cycles / (1e3 * made.level.clock_khz)
        steps.append(Step(
            clock.seconds, made.charge_ppm, made.level, cycles, seconds, late=made.choice.late,
            in_time=not table.plan.deadline_ns or time_ns(cycles, made.level.clock_khz) <= table.plan.deadline_ns,
            right=bool(one.right[number]),
            differing=sum(int(np.count_nonzero(made.outputs[name] != values[number]))
                          for name, values in one.outputs.items())))
        clock.passes(seconds)
        progress(len(steps), f"{made.charge_ppm / 1e4:.1f} %, {made.level.name}")
    for model in models:
        model.unload()
    return Discharge(table, steps)
