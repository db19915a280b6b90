"""Buffer port: entries, their values and their tokens meet at the input buffer's write port."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from ..buffers.input_buffer import ENTRY_BITS, BufferWrite
from ..config import NpuConfig
from ..control.token_merge import TokenMerge
from ..lib.component import Component, record
from .pixel_path import EntryValue
from .winograd.winograd_input import TileEntry

__all__ = ["BufferPort", "EntryPlace"]


def EntryPlace(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """A write to the banks that are enabled; ``post`` a token when it can be read."""
    return data.StructLayout({"enable": config.banks, "address": ENTRY_BITS, "post": 1})


class BufferPort(Component):
    """Write ``entry`` when its ``value`` is there, ``latency`` cycles later, and transformed ``tiles`` in between.

    Values are sign-extended to ``activation_bits``.
    """

    def __init__(self, config: NpuConfig, *, latency: int):
        self.config = config
        self.latency = latency
        super().__init__({
            "entry": In(EntryPlace(config)),   # that is to be written
            "value": In(EntryValue(config)),    # of the entry of ``latency`` cycles ago
            # Transformed entries, written in between.
            **({"tiles": In(stream.Signature(TileEntry(config)))} if config.winograd else {}),
            "write": Out(BufferWrite(config)),  # to the input buffer
            "post_compute": Out(1),             # a token for the compute queue
            "busy": Out(1),                     # entries are on their way that are not being written now
            "owed": Out(1),                     # a token is
        })

    def elaborate(self, platform):
        m = Module()
        config, write, value = self.config, self.write, self.value
        entry, on_the_way = self.entry, 0
        occupied = entry.enable.any()       # by the entry that is being written
        for number in range(1, self.latency + 1):
            on_the_way = on_the_way | entry.enable.any()
            before, entry = entry, record(EntryPlace(config), name=f"entry{number}")
            occupied = Signal(name=f"occupied{number}")
            m.d.sync += [entry.eq(before), occupied.eq(before.enable.any())]
        values = [value.data.word_select(number, 8) for number in range(config.write_lanes * config.ic_lanes)]
        m.d.comb += [
            write.enable.eq(entry.enable),
            write.address.eq(entry.address),
            write.data.eq(Cat(Cat(value, value[7].replicate(config.activation_bits - 8)) for value in values)),
            self.post_compute.eq(entry.post),
            self.busy.eq(on_the_way),
        ]
        if config.gather:
            m.d.comb += write.bytes.eq(value.bytes)
        if config.binary_rows:
            m.d.comb += write.zero.eq(value.zero)
        if config.winograd:
            self._write_tiles(m, entry, occupied)
        return m

    def _write_tiles(self, m: Module, entry: data.View, occupied: Value) -> None:
        """Entries of tiles, when no other is written, and their tokens, whenever those come."""
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
            ]
            if config.gather:
                m.d.comb += write.bytes.eq(~0)
            if config.binary_rows:
                m.d.comb += write.zero.eq(0)
