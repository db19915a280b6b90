"""Tile loader: what LOAD_WINOGRAD makes of the boxes after it."""

from amaranth.hdl import Module
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect, flipped

from ...arch.instruction_layout import INDEX_BITS, QueuedInstruction, instruction_layout, queue_layout
from ...arch.isa import Opcode, Queue
from ...config import NpuConfig
from ...lib.component import Component, record
from ..load_dispatch import Setting
from .winograd_input import TileEntry, WinogradInput
from .winograd_lines import TilePixel

__all__ = ["TileLoader"]


class TileLoader(Component):
    """Keep the latest LOAD_WINOGRAD and give its boxes to `WinogradInput`: those that start while ``tiled``.

    The rest is as there.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "setting": In(Setting),                                # an instruction that sets something is taken
            "instruction": In(QueuedInstruction),                         # what is taken
            "geometry": In(instruction_layout(Opcode.LOAD_SET)),  # the latest LOAD_SET
            "start_box": In(1),             # a LOAD_ACT is taken
            "tiled": Out(1),                # boxes that start become tiles
            "pixels": In(stream.Signature(TilePixel(config))),  # of the box
            "entries": Out(stream.Signature(TileEntry(config))),  # transformed
            # A cycle ago: an entry beyond the input buffer, or a box that is not made of tiles.
            "overrun": Out(1),
            "index": Out(INDEX_BITS),       # load at hand
            "idle": Out(1),                 # no tiles are being made
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.transformer = transformer = WinogradInput(self.config)
        word = data.View(queue_layout(Queue.LOAD), self.instruction.word)
        act = word.load_act
        transform = record(instruction_layout(Opcode.LOAD_WINOGRAD))
        with m.If(self.setting.load_set):
            m.d.sync += self.tiled.eq(0)
        with m.If(self.setting.load_winograd):
            m.d.sync += [self.tiled.eq(1), transform.eq(word.load_winograd)]
        sources = (
            (act, ("buf_base", "post_compute")),
            (self.geometry, ("buf_block_pitch",)),
            (transform, ("shifts", "tile_cols", "position_pitch")),
            (self.instruction, ("index",)),
        )
        m.d.comb += [transformer.load[name].eq(source[name]) for source, names in sources for name in names]
        m.d.comb += [
            transformer.start.eq(self.start_box & self.tiled),
            self.overrun.eq(transformer.overrun),
            self.index.eq(transformer.index),
            self.idle.eq(transformer.idle),
        ]
        connect(m, flipped(self.pixels), transformer.pixels)
        connect(m, transformer.entries, flipped(self.entries))
        return m
