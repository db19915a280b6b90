"""Stores with fewer lanes than a beat has channels, in small machines."""

from dataclasses import dataclass

from cores.config.units.base import Unit
from cores.config.units.maximum import MaximumSettings
from cores.config.units.product import ProductSettings
from cores.config.units.rows import RowsSettings
from cores.config.units.stages import StagesSettings
from cores.config.units.stochastic import StochasticSettings
from cores.config.units.turn import TurnSettings
from cores.config.units.winograd import WinogradSettings

__all__ = ["UNIT", "NarrowSettings"]

#: Fields of units whose parts of the store engine are made for whole beats.
_WHOLE_BEATS = ("winograd", "binary_rows", "product", "store_multipliers", "maximum")
#: Fields of units that are made for beats of eight channels or more.
_WIDE_BEATS = ("winograd", "binary_rows", "stochastic_rows", "rows", "turn")


@dataclass(frozen=True, kw_only=True)
class NarrowSettings(
    MaximumSettings, StagesSettings, RowsSettings, TurnSettings, StochasticSettings, ProductSettings, WinogradSettings,
):

    #: Lanes of the store engine, which take a beat's channels one part after the other; 0: one for each channel.
    store_lanes: int = 0

    @property
    def store_parts(self) -> int:
        return self.ic_lanes // self.store_lanes if self.store_lanes else super().store_parts

    def check(self) -> None:
        super().check()
        lanes = self.store_lanes
        self.require("store_lanes", lanes == 0 or 0 < lanes < self.ic_lanes and lanes & (lanes - 1) == 0,
                     f"be 0 or a power of two below ic_lanes={self.ic_lanes}")
        for name in _WHOLE_BEATS:
            self.require("store_lanes", lanes == 0 or getattr(self, name) == 0, f"be 0 with {name}")
        for name in _WIDE_BEATS:
            self.require("ic_lanes", self.ic_lanes >= 8 or getattr(self, name) == 0, f"be 8 or more with {name}")


UNIT = Unit(
    name="narrow",
    settings=NarrowSettings,
    fields=("store_lanes",),
    reduces=True,
    computes=False,
)
