"""Padded walk: the pixels of a box with padding around it, in the order in which they are written."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..arch.instruction_layout import field_shape
from ..arch.isa import Opcode
from .phase_counter import PhaseCounter

__all__ = ["Box", "PaddedWalk"]

#: ``blocks`` times ``rows`` rows of ``cols`` data pixels, and the rows of padding around them.
Box = data.StructLayout({
    **{name: field_shape(Opcode.LOAD_ACT, name) for name in ("blocks", "pad_top", "rows", "pad_bottom")},
    "cols": field_shape(Opcode.LOAD_WGT, "beats"),      # the longest rows are those of weights
})


class PaddedWalk(wiring.Component):
    """Say of a box's pixel whether it is data or padding, and whether it ends its row, its block or the box.

    For block, row, column, one pixel a cycle.
    """

    def __init__(self, *, left_bits: int, right_bits: int):
        super().__init__({
            "start": In(1),           # begin ``box``
            "box": In(Box),           # the next one
            "left": In(left_bits),    # pixels of padding in front of a row, from ``start`` to the end
            "right": In(right_bits),  # pixels of padding behind it
            "step": In(1),            # go on by a pixel
            "is_data": Out(1),        # the pixel is data, not padding
            "row_end": Out(1),        # it is the last of its row
            "block_end": Out(1),      # it is the last of its block
            "last_block": Out(1),     # it is in the box's last block
            "end": Out(1),            # it is the last of the box
        })

    def elaborate(self, platform):
        m = Module()
        members = Box.members
        m.submodules.cols = cols = PhaseCounter(
            before_bits=len(self.left), data_bits=members["cols"], behind_bits=len(self.right), may_lack_data=False)
        m.submodules.rows = rows = PhaseCounter(
            before_bits=members["pad_top"], data_bits=members["rows"], behind_bits=members["pad_bottom"],
            may_lack_data=True)

        box, here = Signal(Box), Signal(Box)
        m.d.comb += here.eq(Mux(self.start, self.box, box))
        m.d.comb += [
            *[counter.start.eq(self.start) for counter in (cols, rows)],
            cols.before.eq(self.left),
            cols.data.eq(here.cols),
            cols.behind.eq(self.right),
            rows.before.eq(here.pad_top),
            rows.data.eq(here.rows),
            rows.behind.eq(here.pad_bottom),
            cols.step.eq(self.step),
            rows.step.eq(self.step & cols.last),
            self.is_data.eq(rows.in_data & cols.in_data),
            self.row_end.eq(cols.last),
            self.block_end.eq(cols.last & rows.last),
            self.last_block.eq(box.blocks == 1),
            self.end.eq(self.block_end & self.last_block),
        ]
        with m.If(self.step & self.block_end):
            m.d.sync += box.blocks.eq(box.blocks - 1)
        with m.If(self.start):
            m.d.sync += box.eq(self.box)
        return m
