"""Four strategies for a battery, and what is published of them: levels stepped down or not, streams shorter or not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .battery import Discharge, Setting, discharge
from .levels import Level, Levels

__all__ = ["PUBLISHED", "Plan", "Strategy", "Verdict", "strategies"]

#: Inferences over those of the fixed strategy, MLP / LeNet / AlexNet with AND-LOOP: both together twice as many, and
#: 1.5 times those of either alone.
PUBLISHED: Mapping[str, float] = {"fixed": 1.0, "levels": 2.0 / 1.5, "lengths": 2.0 / 1.5, "both": 2.0}


@dataclass(frozen=True)
class Plan:
    """A network and a circuit on a battery: a length of streams for each level that is used.

    By length: ``cycles`` and ``accuracy``. ``per_cycle``: relative energy of a cycle at 1 V. ``bounds``: least
    accuracy at each level, a share. ``deadline``: seconds of an inference; None: what the fixed strategy takes.
    ``inferences``: of the fixed strategy, for which the battery is enough. Raises ValueError unless each level has
    a length and a bound.
    """

    levels: Levels
    lengths: Sequence[int]
    cycles: Mapping[int, int]
    accuracy: Mapping[int, float]
    per_cycle: float
    bounds: Sequence[float]
    deadline: float | None
    inferences: int

    def __post_init__(self) -> None:
        for what, values in (("lengths", self.lengths), ("bounds", self.bounds)):
            if len(values) != len(self.levels.used):
                raise ValueError(f"{what} must be one for each of {len(self.levels.used)} levels, not {len(values)}")

    def setting(self, above: float, level: Level, length: int) -> Setting:
        return Setting(above, level, length, self.cycles[length], self.accuracy[length], self.per_cycle)

    @property
    def fixed(self) -> Setting:
        """Of a full battery, whatever its charge."""
        return self.setting(0.0, self.levels.used[0], self.lengths[0])

    @property
    def limit(self) -> float:
        """Seconds that an inference may take."""
        return self.fixed.seconds if self.deadline is None else self.deadline


@dataclass(frozen=True)
class Verdict:
    """Of a strategy at a level: whether the deadline is met, and the level's accuracy reached."""

    setting: Setting
    in_time: bool
    accurate: bool


@dataclass(frozen=True)
class Strategy:
    """``gain``: inferences over those of the fixed strategy."""

    name: str
    discharge: Discharge
    gain: float
    verdicts: tuple[Verdict, ...]


def strategies(plan: Plan) -> list[Strategy]:
    """The four, as `PUBLISHED` has them."""
    used, budget = plan.levels.used, plan.inferences * plan.fixed.energy
    found: list[Strategy] = []
    for name in PUBLISHED:
        settings = [plan.setting(level.above or 0.0, level if name in ("levels", "both") else used[0],
                                 length if name in ("lengths", "both") else plan.lengths[0])
                    for level, length in zip(used, plan.lengths, strict=True)]
        run = discharge(budget, settings)
        verdicts = tuple(Verdict(setting, setting.level.meets(plan.limit, setting.cycles), setting.accuracy >= bound)
                         for setting, bound in zip(settings, plan.bounds, strict=True))
        gain = run.inferences / found[0].discharge.inferences if found else 1.0
        found.append(Strategy(name, run, gain, verdicts))
    return found
