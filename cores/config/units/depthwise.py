"""Spread words: groups of output lanes on different pixels, reduction lanes on different taps."""

from dataclasses import dataclass

from cores.config.core import Core
from cores.config.units.base import Unit

__all__ = ["UNIT", "DepthwiseSettings"]


@dataclass(frozen=True, kw_only=True)
class DepthwiseSettings(Core):

    #: 1: groups of output lanes can work on different pixels, and reduction lanes on different taps: layers with few
    #: output channels and depthwise layers fill the array (docs/architecture.md, "Spread words").
    depthwise: int = 0

    @property
    def banks(self) -> int:
        return self.pixel_lanes * self.oc_groups if self.depthwise else super().banks

    @property
    def window_reads(self) -> int:
        reads = (self.banks + self.nnz_lanes - 2) // self.banks + 1
        return reads if self.depthwise else super().window_reads

    def check(self) -> None:
        super().check()
        self.require_switch("depthwise")
        if not self.depthwise:
            return
        tn = self.ic_lanes
        self.require("pixel_lanes", self.pixel_lanes == 2, "be 2 with depthwise")
        self.require("select_fanin", self.select_fanin == tn,
                     f"be ic_lanes={tn} with depthwise: every lane reaches every channel")
        self.require("oc_lanes", self.oc_groups <= 2, f"be at most {2 * tn} with depthwise")
        self.require("nnz_lanes", self.nnz_lanes % self.banks == 0,
                     f"be a multiple of {self.banks} with depthwise, the pixels read at once")


UNIT = Unit(
    name="depthwise",
    settings=DepthwiseSettings,
    fields=("depthwise",),
    always_written=True,
    switch=True,
    # Every lane reaches every channel of a block, and multiplexers of 32 inputs take more LUTs than all else. Half of
    # the weights of a block are multiplied at once, or all, as suits the dense networks that have depthwise layers
    # (docs/scale.md).
    lanes={
        512: dict(oc_lanes=32, ic_lanes=16, nnz_lanes=8, pixel_lanes=2, select_fanin=16, input_depth=4096),
        1024: dict(oc_lanes=32, ic_lanes=16, nnz_lanes=16, pixel_lanes=2, select_fanin=16, input_depth=4096),
    },
    # The reads of spread words.
    area={"compute": lambda c: (c.depthwise * c.macs, c.depthwise * c.oc_groups)},
)
