"""Sources of spread words and windows: each group of output lanes, and each lane, has its own."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from ...lib.bits import select
from ...lib.component import record
from ..lane_sources import LaneSources

__all__ = ["SourceSelect", "SpreadSources"]

#: Which of the pixels read a word's pixels are; docs/architecture.md, "Spread words". ``part``: which of a read's
#: words, unless spread.
SourceSelect = data.StructLayout({"part": 1, "spread": 1, "window": 1, "alternate": 1})


class SpreadSources(LaneSources):
    """A multiplexer of four for every group, lane, channel and pixel.

    Words with ``window`` reach back over ``window_reads`` reads: pixels are kept for as many, the oldest first, and
    lane j's tap is j pixels to the right.
    """

    def ports(self) -> dict[str, wiring.Member]:
        # Which pixels the groups of output lanes take; belongs to the pixels of the cycle before.
        return {"source": In(SourceSelect)}

    def layout(self) -> data.ArrayLayout:
        return data.ArrayLayout(super().layout(), self.config.nnz_lanes)

    def of_lane(self, channels: Any, lane: int) -> Any:
        return channels[lane]

    def follow(self, array: Any, word: Any) -> list[Any]:
        return [
            array.source.part.eq(word.lane[-1]),
            array.source.spread.eq(word.spread),
            array.source.window.eq(word.window),
            array.source.alternate.eq(word.alternate),
        ]

    def reads(self, m: Module, ordered: list[list[Value]]) -> list[list[Value]]:
        """Of each channel the pixels of the last ``window_reads`` reads, the oldest first."""
        config = self.config
        history: list[list[Value]] = []
        for channel, pixels in enumerate(ordered):
            reads: list[list[Value]] = []
            for age in range(config.window_reads):
                registers: list[Value] = [
                    Signal(signed(config.activation_bits), name=f"read{age}_{channel}_{q}", reset_less=True)
                    for q in range(config.banks)]
                newer = reads[-1] if reads else pixels
                m.d.sync += [register.eq(value) for register, value in zip(registers, newer, strict=True)]
                reads.append(registers)
            history.append([pixel for read in reversed(reads) for pixel in read])
        return history

    def build(self, m: Module, array: Any, ordered: list[list[Value]]) -> list[Any]:
        config, px = self.config, self.config.pixel_lanes
        history = self.reads(m, ordered)
        source = array.source
        oldest = (config.window_reads - 1) * config.banks   # where the newest read begins
        groups = []
        for g in range(config.oc_groups):
            # Registers would make these late; they are wires of a few bits.
            second = Signal(2, name=f"choice{g}")
            part = Mux(source.spread, g, source.part) if config.oc_groups > 1 else 0
            m.d.comb += second.eq(Cat(Mux(source.window, source.alternate, part), source.window))
            channels = record(self.layout(), name=f"sources{g}", reset_less=True)
            for lane in range(config.nnz_lanes):
                for channel, window in enumerate(history):
                    x = []
                    for p in range(px):
                        plain = [window[oldest + p], window[oldest + (px + p) % config.banks]]
                        columns, rows = window[px * g + p + lane], window[min(2 * p + lane, len(window) - 1)]
                        x.append(select(second, [*plain, columns, rows]).as_signed())
                    m.d.sync += Value.cast(channels[lane][channel]).eq(self.pair(x))
            groups.append(channels)
        return groups
