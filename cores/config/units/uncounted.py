"""Machines that count nothing but the cycles of a run."""

from dataclasses import dataclass

from cores.config.core import Core
from cores.config.units.base import Unit

__all__ = ["UNIT", "UncountedSettings"]


@dataclass(frozen=True, kw_only=True)
class UncountedSettings(Core):

    #: 1: of the counters the machine has ``cycles`` alone.
    cycles_only: int = 0

    def check(self) -> None:
        super().check()
        self.require_switch("cycles_only")


UNIT = Unit(
    name="uncounted",
    settings=UncountedSettings,
    fields=("cycles_only",),
    reduces=True,
    computes=False,
    # One counter is a carry chain, of constant size; factors are not negative, so what others have more is the term.
    area={"counters": lambda c: (1 - c.cycles_only,)},
)
