"""Entry placer: where in the input buffer a box's pixels go."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ..arch.instruction_layout import instruction_layout
from ..arch.isa import Opcode
from ..buffers.input_buffer import ENTRY_BITS, BankShape
from ..config import NpuConfig
from ..lib.component import Component
from .phase_counter import count_down

__all__ = ["EntryPlacer", "PlacedPixels"]


def PlacedPixels(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """Neighbouring pixels that take their places, one in each of ``lanes``, the first among them; none is 0.

    ``row_end``, and with it ``block_end``: they are the last of their row and block. ``next_entry``: the next block
    begins other entries. ``run``: a pixel is a gathered run, whose neighbours lie in neighbouring banks.
    """
    return data.StructLayout({"lanes": config.write_lanes, "row_end": 1, "block_end": 1, "next_entry": 1, "run": 1})


class EntryPlacer(Component):
    """Number the banks and the entry of the pixels of a box (docs/architecture.md, "Loading"). Latency 0."""

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "start": In(1),                      # begin a box
            "base": In(instruction_layout(Opcode.LOAD_ACT).members["buf_base"]),  # its first entry
            "geometry": In(instruction_layout(Opcode.LOAD_SET)),  # stands until the box's end
            "pixels": In(PlacedPixels(config)),  # that take their places now
            "enable": Out(config.banks),         # banks of these
            "entry": Out(ENTRY_BITS),            # that they go to
            "overrun": Out(1),                   # it is not in the input buffer
        })

    def elaborate(self, platform):
        m = Module()
        geometry, pixels = self.geometry, self.pixels
        block, row, entry = Signal(ENTRY_BITS), Signal(ENTRY_BITS), self.entry
        placing, row_end, block_end = pixels.lanes.any(), pixels.row_end, pixels.row_end & pixels.block_end
        m.d.comb += [self.enable.eq(pixels.lanes), self.overrun.eq(placing & (entry >= self.config.input_depth))]
        # One sum for the next entry, the next row and the next block.
        onwards = Signal(ENTRY_BITS)
        pitch = Mux(pixels.block_end, Mux(pixels.next_entry, geometry.buf_block_pitch, 0), geometry.buf_row_pitch)
        m.d.comb += onwards.eq(Mux(row_end, Mux(pixels.block_end, block, row), entry) + Mux(row_end, pitch, 1))
        with m.If(placing):
            m.d.sync += entry.eq(onwards)
        if self.config.banks > 1:
            columns = Signal(len(geometry.stride) + 1)      # after this one, of those of a bank; see `count_down`
            bank = Signal(BankShape(self.config))
            first = Signal(ENTRY_BITS)      # entry of the bank's first column of the ``stride`` that it has here
            more, bank_end = pixels.lanes[1:], Signal()
            m.d.comb += [
                self.enable.eq(pixels.lanes << bank),
                bank_end.eq(pixels.run | columns[-1]),
            ]
            with m.If(placing | self.start):
                m.d.sync += columns.eq(
                    count_down(bank_end | row_end | self.start, columns, geometry.stride, first=2))
            with m.If(placing):
                with m.If(bank_end):
                    m.d.sync += bank.eq(bank + 1 + more)
                    # A bank is done with its ``stride`` columns: the next are the next bank's at the same entries.
                    with m.If((bank | more).all()):
                        m.d.sync += first.eq(onwards)
                    with m.Elif(~row_end):
                        m.d.sync += entry.eq(first)
                with m.If(row_end):
                    m.d.sync += [bank.eq(0), first.eq(onwards)]
            with m.If(self.start):
                m.d.sync += [bank.eq(0), first.eq(self.base)]
        with m.If(placing & row_end):
            m.d.sync += row.eq(onwards)
        with m.If(placing & block_end):
            m.d.sync += block.eq(onwards)
        with m.If(self.start):
            m.d.sync += [signal.eq(self.base) for signal in (block, row, entry)]
        return m
