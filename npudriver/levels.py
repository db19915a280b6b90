"""Levels that a governor chooses from, and its plan: what `python -m gen govern` writes as governor.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Sequence

from .errors import DriverError, PackageError
from .fields import Fields, parsed
from .files import read_file

__all__ = ["FULL", "Level", "LevelTable", "LevelsFileError", "MOST_LEVELS", "Plan"]

#: Parts of a full battery that charges are given in.
FULL = 1_000_000
MOST_LEVELS = 32
#: Of times and energies: products with parts of a charge are within 64 bits, in C too.
_MOST = 1 << 43
_RIGHT = 10_000
_FORMAT, _VERSION = "npugen levels", 1
_MAX_FILE, _MAX_TEXT, _MAX_SHIFT, _MAX_CLOCK, _MAX_VOLTS = 1 << 18, 200, 7, 100_000_000, 100_000
_REMEDY = "docs/governor.md says what it has"


class LevelsFileError(DriverError):
    """A file or a table that holds no levels of a governor, or a plan that they do not go with."""

    code = "bad-levels"


@dataclass(frozen=True)
class Level:
    """A way to make an inference.

    ``program``: its number in `LevelTable.programs`; ``shift``: powers of two by which its streams are shorter.
    ``clock_khz``, ``millivolts``: of the machine at this level, 0 where they stay as they are. ``time_ns``, ``energy``
    (in the table's unit): of an inference. ``right``: of 10,000 answers. ``above_ppm``: charge above which the level is
    used by a plan of thresholds, in millionths of a full battery.
    """

    name: str
    program: int
    shift: int
    clock_khz: int
    millivolts: int
    time_ns: int
    energy: int
    right: int
    above_ppm: int


@dataclass(frozen=True)
class Plan:
    """What levels are chosen by.

    ``kind``: ``thresholds``, the levels' own; or ``lasting``: an inference every ``period_us`` microseconds, for
    ``lasts_us`` from the first one on. ``deadline_ns``: of an inference, 0 for none. ``hysteresis_ppm``: of thresholds
    by how much more charge a level comes back, in millionths of a full battery; of lasting how much more than its
    energy there must be, in millionths of that. ``least_right``: levels with fewer of 10,000 answers right are not
    used.
    """

    kind: str = "thresholds"
    deadline_ns: int = 0
    hysteresis_ppm: int = 20_000
    least_right: int = 0
    period_us: int = 0
    lasts_us: int = 0


@dataclass(frozen=True)
class LevelTable:
    """Levels by falling energy; ``battery``: energy of a full one, in ``unit``, 0 where it is not known.

    ``programs``: files of deployed models, beside the table's. Raises LevelsFileError.
    """

    levels: Sequence[Level]
    plan: Plan
    battery: int = 0
    unit: str = "relative"
    programs: Sequence[str] = ("",)
    about: str = ""

    def __post_init__(self) -> None:
        if not 1 <= len(self.levels) <= MOST_LEVELS:
            raise LevelsFileError(f"there must be 1 to {MOST_LEVELS} levels, not {len(self.levels)}")
        names = [level.name for level in self.levels]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise LevelsFileError(f"two levels are called {twice}")
        for one, other in zip(self.levels, self.levels[1:]):
            if one.energy <= other.energy:
                raise LevelsFileError(f"level {other.name} takes no less energy than {one.name}, the one before it")
        for level in self.levels:
            if level.program >= len(self.programs):
                raise LevelsFileError(f"level {level.name}: there is no program {level.program}")
        self._check_plan()

    def _check_plan(self) -> None:
        plan = self.plan
        if all(level.right < plan.least_right for level in self.levels):
            raise LevelsFileError(f"no level has {plan.least_right / 100:g} % of its answers right, as the plan asks")
        if plan.kind == "lasting":
            missing = [name for name, value in (("period_us", plan.period_us), ("lasts_us", plan.lasts_us),
                                                ("battery", self.battery)) if not value]
            if missing:
                raise LevelsFileError(f"a plan of kind lasting needs {' and '.join(missing)}")
            return
        for one, other in zip(self.levels, self.levels[1:]):
            if one.above_ppm <= other.above_ppm:
                raise LevelsFileError(f"level {other.name} is not for less charge than {one.name}, the one before it")
        first, last = self.levels[0], self.levels[-1]
        if last.above_ppm:
            raise LevelsFileError(f"level {last.name}, the last one, must be used down to an empty battery: "
                                  "\"above_ppm\": 0")
        if len(self.levels) > 1 and first.above_ppm + plan.hysteresis_ppm >= FULL:
            raise LevelsFileError(f"level {first.name} would never come back: its threshold and the hysteresis are "
                                  "a full battery")

    @classmethod
    def load(cls, path: Path | str) -> LevelTable:
        """Raises LevelsFileError, which names the file, and OSError."""
        try:
            return cls.read(read_file(path, _MAX_FILE))
        except LevelsFileError as error:
            raise LevelsFileError.of(error, f"{path}: {error}") from None

    @classmethod
    def read(cls, content: bytes) -> LevelTable:
        """Of a file's content."""
        try:
            found = Fields(parsed(content), "levels", _REMEDY)
            found.choice("format", _FORMAT)
            found.integer("version", _VERSION, _VERSION)
            plan = found.inner("plan")
            table = dict(
                levels=tuple(_level(entry) for entry in found.objects("levels")),
                plan=Plan(plan.choice("kind", "thresholds", "lasting"), plan.integer("deadline_ns", 0, _MOST),
                          plan.integer("hysteresis_ppm", 0, FULL), plan.integer("least_right", 0, _RIGHT),
                          plan.integer("period_us", 0, _MOST), plan.integer("lasts_us", 0, _MOST)),
                battery=found.integer("battery", 0, _MOST), unit=_text(found, "unit"),
                programs=_names(found, "programs"), about=_text(found, "about"))
            plan.end()
            found.end()
        except PackageError as error:
            raise LevelsFileError(str(error)) from None
        except (ValueError, UnicodeDecodeError) as error:
            raise LevelsFileError(f"not JSON: {error}") from None
        return cls(**table)     # type: ignore[arg-type]

    def to_json(self) -> str:
        value = {"format": _FORMAT, "version": _VERSION, "about": self.about, "unit": self.unit,
                 "battery": self.battery, "programs": list(self.programs), "plan": asdict(self.plan),
                 "levels": [asdict(level) for level in self.levels]}
        return json.dumps(value, indent=1) + "\n"


def _text(found: Fields, name: str) -> str:
    text = found.text(name)
    if len(text) > _MAX_TEXT or not text.isprintable():
        raise found.wrong(name, f"a text of up to {_MAX_TEXT} characters", text)
    return text


def _names(found: Fields, name: str) -> tuple[str, ...]:
    names = tuple(found.texts(name))
    if not 1 <= len(names) <= MOST_LEVELS or not all(text.isprintable() for text in names):
        raise found.wrong(name, f"1 to {MOST_LEVELS} names of files", list(names))
    return names


def _level(entry: Fields) -> Level:
    limits = {"program": MOST_LEVELS - 1, "shift": _MAX_SHIFT, "clock_khz": _MAX_CLOCK, "millivolts": _MAX_VOLTS,
              "time_ns": _MOST, "energy": _MOST, "right": _RIGHT, "above_ppm": FULL}
    name = _text(entry, "name")
    numbers = {field.name: entry.integer(field.name, 1 if field.name in ("time_ns", "energy") else 0,
                                         limits[field.name]) for field in fields(Level) if field.name != "name"}
    entry.end()
    return Level(name, **numbers)
