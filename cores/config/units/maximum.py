"""Maxima of 2x2 results, in the store that makes these."""

from dataclasses import dataclass

from cores.config.core import Core
from cores.config.units.base import Unit

__all__ = ["UNIT", "MaximumSettings"]


@dataclass(frozen=True, kw_only=True)
class MaximumSettings(Core):

    #: 1: a STORE can write the largest of each 2x2 results instead of all four.
    maximum: int = 0

    def check(self) -> None:
        super().check()
        self.require_switch("maximum")


UNIT = Unit(
    name="maximum",
    settings=MaximumSettings,
    fields=("maximum",),
    switch=True,
    area={"store": lambda c: (c.maximum * c.ic_lanes,)},
    in_all=False,
)
