"""Models of a device whose inferences are made at the levels that a governor chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from .battery import Battery
from .device import Device
from .errors import PackageError
from .governor import Choice, Governor
from .levels import Level, LevelsFileError
from .model import LoadedModel
from .resident import ResidentProgram

__all__ = ["GovernedModel", "Governed"]


@dataclass(frozen=True)
class Governed:
    """An inference that was made. ``charge_ppm``, ``now_us``: before it; ``cycles``: of the device's counter, None for
    models of several segments, of which it knows the last one's.
    """

    outputs: Mapping[str, np.ndarray]
    choice: Choice
    level: Level
    charge_ppm: int
    now_us: int
    cycles: int | None


class GovernedModel:
    """Runs the model of the level that charge and deadline ask for (docs/governor.md).

    ``models``: of each of the table's programs, loaded, all on one device.

    Before an inference the charge is read and a level chosen. Setting it means: the register that shortens streams, the
    model that runs, and, where the level has another clock or voltage, a call of ``set_clock`` with the level. Such
    levels are refused without ``set_clock``. ``now_us``: microseconds from any beginning; without it the device's own
    time.

    Raises LevelsFileError for a model or a unit that a level needs and that is not there.
    """

    def __init__(self, governor: Governor, models: Sequence[LoadedModel], battery: Battery, *,
                 set_clock: Callable[[Level], Any] | None = None, now_us: Callable[[], int] | None = None) -> None:
        table = governor.table
        if len(models) != len(table.programs):
            raise LevelsFileError(f"the levels are of {len(table.programs)} programs, not of {len(models)}")
        self.governor, self.models, self.battery = governor, models, battery
        self.device: Device = models[0].device
        if any(model.device is not self.device for model in models):
            raise LevelsFileError("the levels' programs must be on one device")
        shifted = next((level for level in table.levels if level.shift), None)
        if shifted is not None and "stream_shift" not in self.device.machine.registers:
            raise LevelsFileError(f"level {shifted.name} shortens streams, which the machine does not have")
        settings = {(level.clock_khz, level.millivolts) for level in table.levels}
        if len(settings) > 1 and set_clock is None:
            raise LevelsFileError("the levels have clocks or voltages of their own, which nothing here sets: set_clock")
        self._set_clock, self._now = set_clock if len(settings) > 1 or settings != {(0, 0)} else None, now_us
        self._clock: tuple[int, int] | None = None

    def run(self, inputs: Mapping[str, np.ndarray]) -> Governed:
        """One inference. Raises as `LoadedModel.run`, and BatteryError."""
        charge = self.battery.charge()
        now = self._now() if self._now is not None else int(self.device.backend.time() * 1e6)
        choice = self.governor.choose(charge, now)
        level = self.governor.levels[choice.level]
        return self._made(inputs, choice, level, charge, now)

    def _made(self, inputs: Mapping[str, np.ndarray], choice: Choice, level: Level, charge: int, now: int) -> Governed:
        if self._set_clock is not None and self._clock != (level.clock_khz, level.millivolts):
            self._set_clock(level)
            self._clock = level.clock_khz, level.millivolts
        self.device.stream_shift = level.shift
        model = self.models[level.program]
        outputs = model.run(inputs)
        self.battery.spend(level.energy)
        programs = [segment for segment in model.segments if isinstance(segment, ResidentProgram)]
        if not programs:
            raise PackageError(f"model {model.deployment.name} has no part on the device")
        cycles = self.device.registers.counter("cycles") if len(programs) == 1 else None
        return Governed(outputs, choice, level, charge, now, cycles)
