"""Sources of windows where lanes do not reach every channel: output lanes have taps of their own channel beside."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from ...lib.component import record
from ..lane_sources import channel_layout
from .spread_sources import SpreadSources

__all__ = ["OwnSources", "PartSelect"]

#: Which of the pixels read a plain word's pixels are; docs/architecture.md, "Spread words".
PartSelect = data.StructLayout({"part": 1, "spread": 1})


class OwnSources(SpreadSources):
    """A word's pixels for all lanes, and for the first `NpuConfig.own_taps` of an output lane the taps of its channel.

    Reads are kept as in `SpreadSources`. A tap's pixels move on by ``banks`` taps with each read, so only those of the
    last ``banks`` taps are made of pixels; the others are what those were a read ago.
    """

    def ports(self) -> dict[str, wiring.Member]:
        # Which pixels the groups of output lanes take, of the cycle before; the step to take over is of windows.
        return {"source": In(PartSelect), "window": In(1)}

    def row_ports(self) -> dict[str, wiring.Member]:
        return {"window": In(1)}    # with the indices: their step is of windows

    def layout(self) -> Any:
        channel = channel_layout(self.config)
        return data.StructLayout({"word": data.ArrayLayout(channel, self.config.ic_lanes),
                                  "taps": data.ArrayLayout(channel, self.config.own_taps)})

    def of_lane(self, channels: Any, lane: int) -> Any:
        return channels.word

    def own_tap(self, channels: Any, lane: int) -> Any:
        return channels.taps[lane] if lane < self.config.own_taps else None

    def of_row(self, sources: list[Any], row: int) -> Any:
        word, taps = sources[row // self.config.ic_lanes % len(sources)]
        return Cat(Value.cast(word), *taps[row % self.config.ic_lanes])

    def follow(self, array: Any, word: Any) -> list[Any]:
        return [
            array.source.part.eq(word.lane[-1]),
            array.source.spread.eq(word.spread),
            array.window.eq(word.window),
        ]

    def build(self, m: Module, array: Any, ordered: list[list[Value]]) -> list[Any]:
        """Of each group of output lanes a word's pixels, and by channel the taps of a window's."""
        config, px = self.config, self.config.pixel_lanes
        history = self.reads(m, ordered)
        columns = px * (config.oc_groups - 1) + config.own_taps     # of the first pixels of all groups' taps
        taps: list[list[Value]] = []                                # by channel and column
        for channel, window in enumerate(history):
            registers: list[Value] = [Signal(channel_layout(config).size, name=f"tap{channel}_{column}",
                                             reset_less=True) for column in range(columns)]
            for column, register in enumerate(registers):
                later = column + config.banks
                m.d.sync += register.eq(registers[later] if later < columns else self.pair(
                    [pixel.as_signed() for pixel in window[column:column + px]]))
            taps.append(registers)

        newest = (config.window_reads - 1) * config.banks
        groups: list[Any] = []
        for g in range(config.oc_groups):
            word = record(data.ArrayLayout(channel_layout(config), config.ic_lanes), name=f"sources{g}",
                          reset_less=True)
            part = Mux(array.source.spread, g, array.source.part) if config.oc_groups > 1 else None
            for channel, window in enumerate(history):
                parts = [[pixel.as_signed() for pixel in window[newest + first:newest + first + px]]
                         for first in range(0, config.banks, px)]
                x = parts[0] if part is None else [Mux(part, high, low) for low, high in zip(*parts, strict=True)]
                m.d.sync += Value.cast(word[channel]).eq(self.pair(x))
            groups.append((word, [of_channel[px * g:px * g + config.own_taps] for of_channel in taps]))
        return groups
