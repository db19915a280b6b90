"""Pixel path: what a box's pixels are, on their way into the input buffer."""

from amaranth.hdl import Module, Mux

from ..timing.load_path import PixelPathTiming
from .load_path import LoadPath

__all__ = ["PixelPath"]


class PixelPath(PixelPathTiming, LoadPath):
    """Bring the pixels of a box to the input buffer as they are, a pixel a cycle."""

    def elaborate(self, platform):
        m = Module()
        config, geometry, enter = self.config, self.geometry, self.enter
        padding = geometry.pad_value.as_unsigned().replicate(config.beat_bytes)
        m.d.comb += [
            self.settled.eq(1),
            self.left.eq(geometry.pad_left),
            self.room.eq(1),
            self.pixel.eq(Mux(enter.is_data, enter.beat, padding)),
            self.placed.next_entry.eq(1),
        ]
        m.d.sync += [
            self.value.data.eq(self.pixel),
            self.placed.lanes.eq(enter.valid),
            self.placed.row_end.eq(enter.row_end),
            self.placed.block_end.eq(enter.block_end),
        ]
        with m.If(self.setting.load_set):
            m.d.sync += self.width.eq(self.extent)
        if config.local_store:
            with m.If(self.kept.enable.any()):
                m.d.comb += self.room.eq(0)
                m.d.sync += self.value.data.eq(self.kept.payload)
        return m
