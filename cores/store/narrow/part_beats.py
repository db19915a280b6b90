"""Beats of results that come in parts."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.utils import exact_log2

from ...config import NpuConfig
from ..result_beats import ResultBeats

__all__ = ["PartBeats"]


class PartBeats(ResultBeats):
    """A beat comes with the results of a pixel's last part, which alone takes a place in the buffer."""

    def __init__(self, config: NpuConfig):
        super().__init__(config)
        self.ISSUE = {"part": exact_log2(config.store_parts)}

    def comes(self, m: Module, requantizer: Any, pixel_comes: Value) -> Value:
        count, self._there = Signal(self.ISSUE["part"], name="parts_there"), Signal(name="part_there")
        m.d.sync += self._there.eq(pixel_comes)
        with m.If(pixel_comes):
            m.d.sync += count.eq(count + 1)
        return pixel_comes & count.all()

    def give(self, m: Module, requantizer: Any, lane: int, unit: Any) -> list[Any]:
        """The results of the parts before the last move on through registers."""
        parts, lanes = self.config.store_parts, requantizer.lanes
        kept = Signal(8 * (parts - 1), name=f"kept{lane}", reset_less=True)
        results = Cat(kept, unit.output)
        with m.If(self._there):
            m.d.sync += kept.eq(results[8:])
        return [requantizer.output[part * lanes + lane].eq(results.word_select(part, 8)) for part in range(parts)]

    def takes_place(self, issue: Any) -> Value:
        return issue.valid & issue.part.all()

    def leaves_room(self, issue: Any) -> list[Value]:
        return [~issue.part.all()]

    def in_bursts(self, chain: Any, wanted: Value) -> Value:
        return Const(0)
