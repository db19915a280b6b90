"""Padded walk: the pixels of a box with padding around it, in the order in which they are written."""

from amaranth.hdl import Module, Shape, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect, flipped

from ..arch.instruction_layout import field_shape
from ..arch.isa import Opcode
from ..lib.component import Component, record
from ..lib.stream_buffer import StreamBuffer
from ..timing.load import PaddedWalkTiming
from .load_context import EXTENT_BITS
from .phase_counter import PhaseCounter, count_down

__all__ = ["Box", "PaddedWalk", "WalkedPixel"]

#: ``blocks`` times ``height`` rows of ``width`` pixels. Those of a ``ring`` are data, and so are those of a box that
#: are in ``rows`` rows after ``pad_top``, as far as padding leaves them to be.
Box = data.StructLayout({
    **{name: field_shape(Opcode.LOAD_ACT, name) for name in ("blocks", "pad_top", "rows")},
    "height": EXTENT_BITS,
    "width": field_shape(Opcode.LOAD_WGT, "beats"),     # the longest rows are those of weights
    "ring": 1,
})

#: A pixel: whether it is data, not padding, and what it is the last of; is it in the box's last block?
WalkedPixel = data.StructLayout({"is_data": 1, "row_end": 1, "block_end": 1, "last_block": 1, "end": 1})


class PaddedWalk(PaddedWalkTiming, Component):
    """Say of a box's pixel whether it is data or padding, and whether it ends its row, its block or the box.

    For block, row, column, one pixel a cycle, also from box to box: the next one is taken when the last row of the one
    before it is under way. Its first pixel comes `LATENCY` cycles after it. All that a pixel depends on is known a
    cycle before, and two pixels may wait.
    """

    def __init__(self, *, left_bits: int):
        super().__init__({
            "boxes": In(stream.Signature(Box)),  # to be walked through
            "left": In(left_bits),  # pixels of padding in front of a row; stands from the box until its last row
            "cols": In(field_shape(Opcode.LOAD_SET, "cols")),  # of data in it; as ``left``
            "pixels": Out(stream.Signature(WalkedPixel)),  # in order
        })

    def elaborate(self, platform):
        m = Module()
        bits = {name: Shape.cast(shape).width for name, shape in Box.members.items()}
        m.submodules.cols = cols = PhaseCounter(
            before_bits=len(self.left), data_bits=len(self.cols), length_bits=bits["width"])
        m.submodules.rows = rows = PhaseCounter(
            before_bits=bits["pad_top"], data_bits=bits["rows"], length_bits=bits["height"])
        m.submodules.buffer = buffer = StreamBuffer(WalkedPixel)
        connect(m, buffer.output, flipped(self.pixels))

        # The box at hand, or the next one: in the last row nothing of the one at hand is needed any more.
        box, fresh = record(Box), Signal()
        walking, ring = Signal(), Signal()
        blocks = Signal(bits["blocks"] + 1)        # after the present one, less one
        step, over, pixel = Signal(), Signal(), buffer.input.payload
        m.d.comb += [
            self.boxes.ready.eq(~fresh & (~walking | (rows.last & pixel.last_block))),
            step.eq(walking & buffer.input.ready),
            # Counters begin again and again until there is a box.
            over.eq(~walking | (step & pixel.end)),
            buffer.input.valid.eq(walking),
            pixel.is_data.eq(ring | (rows.in_data & cols.in_data)),
            pixel.row_end.eq(cols.last),
            pixel.block_end.eq(cols.last & rows.last),
            pixel.last_block.eq(blocks[-1]),
            pixel.end.eq(pixel.block_end & pixel.last_block),

            cols.before.eq(self.left),
            cols.data.eq(self.cols),
            cols.length.eq(box.width),
            rows.before.eq(box.pad_top),
            rows.data.eq(box.rows),
            rows.length.eq(box.height),
            cols.step.eq(step),
            cols.begin.eq(~walking | (step & cols.last)),
            rows.step.eq(step & cols.last),
            rows.begin.eq(~walking | (step & pixel.block_end)),
        ]
        with m.If(~walking | (step & pixel.block_end)):
            m.d.sync += blocks.eq(count_down(~walking | blocks[-1], blocks, box.blocks, first=2))
        with m.If(over):
            m.d.sync += [walking.eq(fresh), ring.eq(box.ring), fresh.eq(0)]
        with m.If(self.boxes.valid & self.boxes.ready):
            m.d.sync += [box.eq(self.boxes.payload), fresh.eq(1)]
        return m
