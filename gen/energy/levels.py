"""Levels of voltage and frequency, and which charge of the battery each is for: from a file."""

from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from cores.errors import NpugenError
from gen.files.document import DocumentError, read_document

__all__ = ["CORTEX_A7", "Level", "Levels", "LevelsError", "read_levels"]

#: Six levels of a mobile core, of which three are used: what the published comparison is made with.
CORTEX_A7 = Path(__file__).with_name("cortex_a7.json")

_MOST_LEVELS = 32


class LevelsError(NpugenError, ValueError):
    """A file that holds no levels of voltage and frequency; the message names the file."""

    code = "bad-levels"


class Level(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """``above``: share of the battery's charge above which the level is used; a level without one is not used."""

    name: Annotated[str, Meta(min_length=1, max_length=20, pattern=r"^[\w.-]+$")]
    mhz: Annotated[float, Meta(gt=0, le=1e5)]
    volts: Annotated[float, Meta(gt=0, le=100)]
    above: Annotated[float, Meta(ge=0, lt=1)] | None = None

    def seconds(self, cycles: float) -> float:
        return cycles / (self.mhz * 1e6)

    def meets(self, limit: float, cycles: float) -> bool:
        """Whether so many cycles end within ``limit`` seconds, which may itself have been rounded."""
        return self.seconds(cycles) <= limit * (1 + 1e-9)

    def energy(self, cycles: float, per_cycle: float) -> float:
        """Of ``cycles`` that take ``per_cycle`` at 1 V: a cycle's energy goes with the square of the voltage."""
        return cycles * per_cycle * self.volts ** 2


class Levels(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, dict=True):
    """Faster levels are for more charge, and have no lower voltage. Raises ValueError for others."""

    levels: Annotated[tuple[Level, ...], Meta(min_length=1, max_length=_MOST_LEVELS)]
    about: str = ""

    @cached_property
    def used(self) -> tuple[Level, ...]:
        """Of a full battery first."""
        return tuple(sorted((level for level in self.levels if level.above is not None), key=_threshold, reverse=True))

    def __post_init__(self) -> None:
        names = [level.name for level in self.levels]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two levels are called {twice}")
        by_clock = sorted(self.levels, key=lambda level: (level.mhz, level.volts))
        for slow, fast in zip(by_clock, by_clock[1:], strict=False):
            if fast.volts < slow.volts:
                raise ValueError(f"{fast.name} is faster than {slow.name} at a lower voltage")
        if not self.used or self.used[-1].above != 0:
            raise ValueError("one level must be used down to an empty battery: \"above\": 0")
        for full, empty in zip(self.used, self.used[1:], strict=False):
            if full.above == empty.above:
                raise ValueError(f"{full.name} and {empty.name} are for the same charge")
            if full.mhz <= empty.mhz:
                raise ValueError(f"{full.name} is for more charge than {empty.name}, and must be faster")


def _threshold(level: Level) -> float:
    return level.above or 0.0


def read_levels(path: Path) -> Levels:
    """Levels from a .json, .yaml or .yml file. Raises LevelsError that names it, OSError."""
    try:
        return msgspec.convert(read_document(path, "a table of levels", extra="explore"), Levels)
    except (DocumentError, msgspec.MsgspecError) as error:
        raise LevelsError.of(error, f"{path}: {error}", file=str(path)) from None
