"""Gathered loads: runs of bytes become entries of the input buffer."""

from dataclasses import dataclass

from cores.config.core import Core
from cores.config.units.base import Unit

__all__ = ["UNIT", "GatherSettings"]


@dataclass(frozen=True, kw_only=True)
class GatherSettings(Core):

    #: 1: loads gather runs of bytes: layers of few input channels take kernel rows as channels, and signs come as bits.
    gather: int = 0

    @property
    def write_lanes(self) -> int:
        return self.pixel_lanes if self.gather else super().write_lanes

    def check(self) -> None:
        super().check()
        self.require_switch("gather")


UNIT = Unit(
    name="gather",
    settings=GatherSettings,
    fields=("gather",),
    always_written=True,
    switch=True,
    area={"load": lambda c: (c.gather * c.ic_lanes,)},
    imports=True,
)
