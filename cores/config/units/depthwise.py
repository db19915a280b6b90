"""Spread words: groups of output lanes on different pixels, reduction lanes on different taps."""

from dataclasses import dataclass

from cores.config.core import Core
from cores.config.units.base import Unit

__all__ = ["UNIT", "DepthwiseSettings"]

#: Taps of their own channel that output lanes have at the most, a multiplexer each: a row of a 3x3 kernel in one step,
#: and of a 5x5 kernel in two.
_OWN_TAPS = 4


@dataclass(frozen=True, kw_only=True)
class DepthwiseSettings(Core):

    #: 1: groups of output lanes can work on different pixels, and reduction lanes on different taps: layers with few
    #: output channels and depthwise layers fill the array (docs/architecture.md, "Spread words").
    depthwise: int = 0

    @property
    def banks(self) -> int:
        return self.pixel_lanes * self.oc_groups if self.depthwise else super().banks

    @property
    def gathered_taps(self) -> int:
        return self.nnz_lanes if self.depthwise and self.select_fanin == self.ic_lanes else super().gathered_taps

    @property
    def own_taps(self) -> int:
        own = self.depthwise and self.select_fanin < self.ic_lanes
        return min(self.nnz_lanes, _OWN_TAPS) if own else super().own_taps

    @property
    def window_reads(self) -> int:
        reads = (self.banks + self.window_taps - 2) // self.banks + 1
        return reads if self.depthwise else super().window_reads

    def check(self) -> None:
        super().check()
        self.require_switch("depthwise")
        if not self.depthwise:
            return
        tn = self.ic_lanes
        self.require("pixel_lanes", self.pixel_lanes == 2, "be 2 with depthwise")
        self.require("oc_lanes", self.oc_groups <= 2, f"be at most {2 * tn} with depthwise")
        self.require("nnz_lanes", self.window_taps % self.banks == 0,
                     f"be a multiple of {self.banks} with depthwise, the pixels read at once")


UNIT = Unit(
    name="depthwise",
    settings=DepthwiseSettings,
    fields=("depthwise",),
    always_written=True,
    switch=True,
    # The reads of spread words; taps of their own channel, for each multiplier that has one.
    area={"compute": lambda c: ((c.gathered_taps > 0) * c.macs, (c.gathered_taps > 0) * c.oc_groups,
                                c.own_taps * c.oc_lanes)},
)
