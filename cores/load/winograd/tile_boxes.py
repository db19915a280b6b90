"""Boxes that become Winograd tiles, as the load engine has them."""

from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib.wiring import connect

from ...config import NpuConfig
from ..box_tiles import BoxTiles
from ..load_dispatch import LoadDispatch
from ..load_path import LoadPath
from ..padded_walk import PaddedWalk
from .tile_loader import TileLoader
from .tile_port import TilePort

__all__ = ["TileBoxes"]


class TileBoxes(BoxTiles):
    """Those after a LOAD_WINOGRAD do, by way of a `TileLoader`. It goes on writing while other loads follow; the next
    LOAD_ACT waits for it.
    """

    port = TilePort

    def __init__(self, config: NpuConfig):
        super().__init__(config)
        self._loader = tiles = TileLoader(config)
        self.tiled, self.ready, self.valid, self.idle = (
            tiles.tiled, tiles.pixels.ready, tiles.entries.valid, tiles.idle)

    def add(self, m: Module) -> None:
        m.submodules.tiles = self._loader

    def connect(self, m: Module, *, writer: Any, port: Any, dispatch: LoadDispatch, path: LoadPath, walk: PaddedWalk,
                there: Value) -> None:
        tiles, pixel = self._loader, walk.pixels.payload
        connect(m, tiles.entries, port.tiles)
        m.d.comb += [
            tiles.setting.eq(dispatch.setting),
            tiles.instruction.eq(writer.queue.payload.entry),
            tiles.geometry.eq(dispatch.geometry),
            tiles.start_box.eq(dispatch.box_begins),
            tiles.pixels.valid.eq(walk.pixels.valid & dispatch.to_tiles & there),
            tiles.pixels.payload.data.eq(path.pixel),
            tiles.pixels.payload.row_end.eq(pixel.row_end),
            tiles.pixels.payload.block_end.eq(pixel.block_end),
            tiles.pixels.payload.end.eq(pixel.last_block),
        ]
        with m.If(tiles.overrun):
            m.d.comb += [writer.overrun.eq(1), writer.overrun_index.eq(tiles.index)]
        with m.If(~tiles.idle | port.owed):
            m.d.comb += writer.idle.eq(0)
            with m.If(~dispatch.active):
                m.d.comb += writer.index.eq(tiles.index)
