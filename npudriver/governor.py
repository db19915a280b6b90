"""Which level an inference is made at: by charge and deadline, in whole numbers. `npugen_governor.c` chooses the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Sequence

from .levels import FULL, Level, LevelTable

__all__ = ["Choice", "Governor"]

#: Microseconds that are half of what 64 bits count.
_HALF = 1 << 63


@dataclass(frozen=True)
class Choice:
    """``level``: its number. ``late``: no level that is accurate enough meets the deadline, and this is the fastest of
    them. ``short``: the charge is not enough for what is planned: by thresholds for this inference, by a plan that
    lasts for all inferences to come, were they all of the last level.
    """

    level: int
    late: bool = False
    short: bool = False


class Governor:
    """Chooses a level of a table for one inference after the other.

    First by the charge. Towards levels of less energy it goes at once; back only once there is more, by the plan's
    hysteresis, than the level asks for, so a charge that is read unevenly does not make it flutter. Then by the
    deadline: the next level of less energy that meets it and is accurate enough, else the next one of more energy.
    """

    def __init__(self, table: LevelTable) -> None:
        self.table = table
        self.plan = table.plan
        #: What the charge alone has chosen last.
        self._rank = 0
        #: When the first inference did.
        self._began_us: int | None = None

    @property
    def levels(self) -> Sequence[Level]:
        return self.table.levels

    def set_deadline(self, deadline_ns: int) -> None:
        """Of the inferences from now on, 0 for none. Raises ValueError for less."""
        if deadline_ns < 0:
            raise ValueError(f"deadline_ns must be 0 or more, not {deadline_ns}")
        self.plan = replace(self.plan, deadline_ns=deadline_ns)

    def choose(self, charge_ppm: int, now_us: int = 0) -> Choice:
        """For an inference that begins ``now_us`` microseconds after some beginning, with so much charge, in millionths
        of a full battery; what is more than full counts as full. The time may wrap at 2^64. Raises ValueError for less
        than none.
        """
        if charge_ppm < 0 or now_us < 0:
            raise ValueError(f"charge and time must be 0 or more, not {charge_ppm} and {now_us}")
        charge_ppm = min(charge_ppm, FULL)
        energy = self.table.battery * charge_ppm // FULL
        if self.plan.kind == "lasting":
            self._rank, short = self._by_endurance(energy, now_us)
        else:
            self._rank, short = self._by_thresholds(charge_ppm), False
        level, late = self._in_time(self._rank)
        if self.plan.kind != "lasting" and self.table.battery:
            short = self.levels[level].energy > energy
        return Choice(level, late, short)

    def _by_thresholds(self, charge_ppm: int) -> int:
        for number, level in enumerate(self.levels):
            margin = self.plan.hysteresis_ppm if number < self._rank else 0
            if charge_ppm > level.above_ppm + margin:
                return number
        return len(self.levels) - 1

    def _by_endurance(self, energy: int, now_us: int) -> tuple[int, bool]:
        if self._began_us is None:
            self._began_us = now_us
        # As in C, where it may wrap: from half of its range on a time is before the beginning.
        passed = (now_us - self._began_us + _HALF) % (2 * _HALF) - _HALF
        left = self.plan.lasts_us - passed
        inferences = -(-left // self.plan.period_us) if left > 0 else 1
        each = energy // inferences
        for number, level in enumerate(self.levels):
            margin = level.energy * self.plan.hysteresis_ppm // FULL if number < self._rank else 0
            if level.energy + margin <= each:
                return number, False
        return len(self.levels) - 1, self.levels[-1].energy > each

    def _in_time(self, rank: int) -> tuple[int, bool]:
        """The level that the deadline and the accuracy leave of a rank; whether it is late."""
        plan = self.plan
        for number in (*range(rank, len(self.levels)), *range(rank - 1, -1, -1)):
            level = self.levels[number]
            if level.right >= plan.least_right and (not plan.deadline_ns or level.time_ns <= plan.deadline_ns):
                return number, False
        accurate = [number for number, level in enumerate(self.levels) if level.right >= plan.least_right]
        return min(accurate, key=lambda number: self.levels[number].time_ns), True
