"""A battery that inferences empty, at a level for each part of its charge."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .levels import Level

__all__ = ["Discharge", "Phase", "SWITCH_CYCLES", "Setting", "discharge"]

#: Cycles of a switch: one write to a register that scales the lengths of all streams (`RegisterFile`: taken over in two
#: cycles, answered in the third). Nothing is loaded again.
SWITCH_CYCLES = 3


@dataclass(frozen=True)
class Setting:
    """What an inference is above the charge ``above``: at a level, with streams of ``length`` bits.

    ``cycles``; ``accuracy``, a share; ``per_cycle``: relative energy of a cycle at 1 V.
    """

    above: float
    level: Level
    length: int
    cycles: int
    accuracy: float
    per_cycle: float

    @property
    def seconds(self) -> float:
        return self.level.seconds(self.cycles)

    @property
    def energy(self) -> float:
        return self.level.energy(self.cycles, self.per_cycle)

    def switch(self, before: "Setting") -> int:
        """Cycles of changing the streams' length to this one's."""
        return SWITCH_CYCLES if self.length != before.length else 0


@dataclass(frozen=True)
class Phase:
    """``inferences`` one after the other in a setting; ``begin`` seconds, and shares of the charge at both ends."""

    setting: Setting
    inferences: int
    begin: float
    charge: float
    left: float

    @property
    def end(self) -> float:
        return self.begin + self.inferences * self.setting.seconds


@dataclass(frozen=True)
class Discharge:
    phases: tuple[Phase, ...]

    @property
    def inferences(self) -> int:
        return sum(phase.inferences for phase in self.phases)

    @property
    def accuracy(self) -> float:
        """Mean over all inferences; 0 of none."""
        right = sum(phase.inferences * phase.setting.accuracy for phase in self.phases)
        return right / self.inferences if self.inferences else 0.0


def discharge(budget: float, settings: Sequence[Setting]) -> Discharge:
    """``budget``: a full battery, in units of `Setting.energy`. Settings by falling charge, the last one ``above`` 0.

    An inference begins at the setting of its charge, and only where there is enough for all of it. Raises ValueError
    for other settings.
    """
    above = [setting.above for setting in settings]
    if not settings or above[-1] != 0 or any(a <= b for a, b in zip(above, above[1:], strict=False)):
        raise ValueError(f"settings must be by falling charge down to 0, not {above}")
    energy, seconds, phases = budget, 0.0, list[Phase]()
    for number, setting in enumerate(settings):
        if number and energy > 0:
            cycles = setting.switch(settings[number - 1])
            energy -= setting.level.energy(cycles, setting.per_cycle)
            seconds += setting.level.seconds(cycles)
        count = _inferences(energy, setting.above * budget, setting.energy)
        left = energy - count * setting.energy
        phases.append(Phase(setting, count, seconds, max(0.0, energy / budget), max(0.0, left / budget)))
        energy, seconds = left, phases[-1].end
    return Discharge(tuple(phases))


def _inferences(energy: float, above: float, each: float) -> int:
    """How many begin above a charge and have enough to end. Within rounding, an exact multiple is one."""
    if energy <= above:
        return 0
    return min(math.ceil((energy - above) / each - 1e-9), math.floor(energy / each + 1e-9))
