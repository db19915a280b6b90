"""Multipliers of their own for the second stages of stores."""

from dataclasses import dataclass

from cores.config.core import Core
from cores.config.units.base import Unit

__all__ = ["UNIT", "StagesSettings"]


@dataclass(frozen=True, kw_only=True)
class StagesSettings(Core):

    #: Multipliers of a lane of the store engine: 2, one of them for second stages, or 3, another for what these add or
    #: multiply by. 0, and 1, which becomes 0: the one that every lane has.
    store_multipliers: int = 0

    @property
    def own_stage(self) -> bool:
        return self.store_multipliers > 1 or super().own_stage

    @property
    def residual_cycles(self) -> int:
        return super().residual_cycles + 1 - max(1, self.store_multipliers)

    def check(self) -> None:
        super().check()
        self.require("store_multipliers", 0 <= self.store_multipliers <= 3, "be 1, 2 or 3")


UNIT = Unit(
    name="stages",
    settings=StagesSettings,
    fields=("store_multipliers",),
    standard=lambda _config: {"store_multipliers": 3},
    # With two of the second stage nothing chooses whose turn it is, which is about what the other's sum takes.
    area={"store": lambda c: (c.own_stage * c.ic_lanes,)},
    in_all=False,
)
