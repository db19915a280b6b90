"""Padded bytes: what of a beat enters the run gatherer."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ...arch.instruction_layout import instruction_layout, is_kind
from ...arch.isa import EntryForm, Opcode
from ...config import NpuConfig
from ...lib.component import Component, record

__all__ = ["PaddedBytes"]


class PaddedBytes(Component):
    """Replace the bytes of a beat that are not ``data`` by padding, a cycle later; of signs keep its channels'
    signs.

    The signs of a beat are bytes after those of the pixel that entered before it, which are its first: runs that go
    where the gatherer says. ``present``: bytes that do not count as padding; without ``pad_zero`` that are all
    (``binary_rows``).

    Latency `LATENCY`: a beat comes out of block RAM, and late is known what of it is data.
    """

    LATENCY = 1

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "geometry": In(instruction_layout(Opcode.LOAD_SET)),  # of the box; stands until its last beat is out
            "beat": In(config.beat_bits),       # as it came from memory
            "data": In(config.beat_bytes),      # bytes of it that are data
            **({"enter": In(1)} if config.binary_rows else {}),  # it enters
            "bytes": Out(data.ArrayLayout(8, config.beat_bytes)),  # with padding in place of the others
            "present": Out(config.beat_bytes),  # bytes that do not count as padding
        })

    def elaborate(self, platform):
        m = Module()
        geometry, lanes = self.geometry, self.config.beat_bytes
        padding = geometry.pad_value.as_unsigned()
        beat, is_data = (Signal.like(port, name=name, reset_less=True)
                         for port, name in ((self.beat, "arrived"), (self.data, "is_data")))
        m.d.sync += [beat.eq(self.beat), is_data.eq(self.data)]
        for lane in range(lanes):
            m.d.comb += self.bytes[lane].eq(Mux(is_data[lane], beat.word_select(lane, 8), padding))
        m.d.comb += self.present.eq(is_data)
        if self.config.binary_rows:
            with m.If(~geometry.pad_zero):
                m.d.comb += self.present.eq(~0)
            count = self.config.sign_bytes
            before = record(data.ArrayLayout(8, count), reset_less=True)    # signs of the pixel before
            there = Signal(count, reset_less=True)      # their ``present``
            entered = Signal()
            own = slice(count, 2 * count)
            m.d.sync += entered.eq(self.enter)
            with m.If(entered):
                m.d.sync += [before.eq(Cat(self.bytes[lane] for lane in range(lanes)[own])),
                             there.eq(self.present[own])]
            with m.If(~is_kind(geometry.form, EntryForm.BYTES, self.config)):
                m.d.comb += self.present[:count].eq(there)
                for lane in range(count):
                    signs = Cat(~beat[8 * channel + 7] for channel in range(8 * lane, 8 * lane + 8))
                    m.d.comb += [
                        self.bytes[lane].eq(before[lane]),
                        self.bytes[count + lane].eq(
                            Mux(is_data[count + lane], signs, (~geometry.pad_value[-1]).replicate(8))),
                    ]
        return m
