"""Entry placer: where in the input buffer a box's pixels go."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..arch.instruction_layout import instruction_layout
from ..arch.isa import Opcode
from ..buffers.input_buffer import ENTRY_BITS, BankShape
from ..config import NpuConfig

__all__ = ["EntryPlacer", "PlacedPixels"]


def PlacedPixels(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """Neighbouring pixels that take their places, one in each of ``lanes``, the first among them; none is 0.

    ``row_end``, and with it ``block_end``: they are the last of their row and block. ``next_entry``: the next block
    begins other entries. ``run``: a pixel is a gathered run, whose neighbours lie in neighbouring banks.
    """
    return data.StructLayout({"lanes": config.write_lanes, "row_end": 1, "block_end": 1, "next_entry": 1, "run": 1})


class EntryPlacer(wiring.Component):
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
        placing = pixels.lanes.any()
        m.d.comb += [self.enable.eq(pixels.lanes), self.overrun.eq(placing & (entry >= self.config.input_depth))]
        with m.If(placing):
            m.d.sync += entry.eq(entry + 1)
        if self.config.banks > 1:
            phase, bank = Signal.like(geometry.stride), Signal(BankShape(self.config))
            more = pixels.lanes[1:]
            m.d.comb += self.enable.eq(pixels.lanes << bank)
            with m.If(placing):
                with m.If(pixels.run | (phase + 1 == geometry.stride)):
                    # A bank is done with its ``stride`` columns: the next are the next bank's at the same entries.
                    m.d.sync += [
                        phase.eq(0),
                        bank.eq(bank + 1 + more),
                        entry.eq(Mux((bank | more).all(), entry + 1, entry - phase)),
                    ]
                with m.Else():
                    m.d.sync += phase.eq(phase + 1)
            with m.If(self.start | (placing & pixels.row_end)):
                m.d.sync += [phase.eq(0), bank.eq(0)]
        with m.If(placing & pixels.row_end):
            next_row = row + geometry.buf_row_pitch
            m.d.sync += [signal.eq(next_row) for signal in (row, entry)]
            with m.If(pixels.block_end):
                next_block = block + Mux(pixels.next_entry, geometry.buf_block_pitch, 0)
                m.d.sync += [signal.eq(next_block) for signal in (block, row, entry)]
        with m.If(self.start):
            m.d.sync += [signal.eq(self.base) for signal in (block, row, entry)]
        return m
