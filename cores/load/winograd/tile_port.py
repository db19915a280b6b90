"""Tile port: a buffer port that writes transformed tiles in between."""

from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In

from ...buffers.entry_marks import entry_marks
from ...config import NpuConfig
from ...control.token_merge import TokenMerge
from ..buffer_port import BufferPort
from .winograd_input import TileEntry

__all__ = ["TilePort"]


class TilePort(BufferPort):
    """A `BufferPort` that writes the entries of ``tiles`` when no other is written, and gives their tokens whenever
    those come; one that has to wait is ``owed``.
    """

    def __init__(self, config: NpuConfig, *, latency: int):
        super().__init__(config, latency=latency, ports={
            "tiles": In(stream.Signature(TileEntry(config))),   # transformed entries, written in between
        })

    def _write_others(self, m: Module, entry: Any, occupied: Value) -> None:
        config, write, tiles, tile = self.config, self.write, self.tiles, self.tiles.payload
        # A tile's token and another load's can fall on the same cycle. The next of the tiles' is at least 16 cycles
        # off, while no more loads than wait in the queue can follow one another at a cycle each.
        m.submodules.tokens = tokens = TokenMerge()
        m.d.comb += [
            # No other box is under way then, but a beat of the store engine may be.
            tiles.ready.eq(~occupied if config.local_store else 1),
            tokens.first.eq(entry.post),
            tokens.second.eq(tiles.valid & tiles.ready & tile.post),
            self.post_compute.eq(tokens.post),
            self.owed.eq(tokens.owed),
        ]
        with m.If(tiles.valid & tiles.ready):
            m.d.comb += [
                write.enable.eq(1 << tile.bank if config.banks > 1 else 1),
                write.address.eq(tile.address),
                write.data.eq(tile.data.replicate(config.write_lanes)),
                *[getattr(write, mark.name).eq(mark.whole) for mark in entry_marks(config)],
            ]
