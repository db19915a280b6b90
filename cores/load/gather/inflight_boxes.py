"""In-flight boxes: whose runs the gatherer's are."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from ...arch.instruction_layout import INDEX_BITS, field_shape
from ...arch.isa import Opcode
from ...lib.component import Component, record

__all__ = ["InflightBoxes", "PathBox"]

#: What a box's runs need to know of it: first entry, instruction, whether it posts a token.
PathBox = data.StructLayout({"base": field_shape(Opcode.LOAD_ACT, "buf_base"), "index": INDEX_BITS, "post": 1})


class InflightBoxes(Component):
    """Keep the box whose runs are being placed, and the one after it, whose beats may come meanwhile.

    A box begins when it is there and the one before it has ended.
    """

    def __init__(self):
        super().__init__({
            "boxes": In(stream.Signature(PathBox)),  # in order
            "begin": Out(1),    # what is placed from the next cycle on is of another box
            "base": Out(PathBox.members["base"]),  # first entry of that one
            "ending": In(1),    # the last run of the box at hand sets out
            "at_hand": Out(PathBox),  # that box
            "end": Out(1),      # that run is placed, a cycle later
            "drained": Out(1),  # no run of a box is left that has not set out
            "idle": Out(1),     # nor one that has not been placed
        })

    def elaborate(self, platform):
        m = Module()
        behind = record(PathBox)
        waiting = Signal()
        busy = Signal()
        m.d.comb += [
            self.boxes.ready.eq(~waiting),
            self.begin.eq(waiting & (~busy | self.end)),
            self.base.eq(behind.base),
            self.drained.eq(~waiting & (~busy | self.end | self.ending)),
            self.idle.eq(~waiting & ~busy),
        ]
        m.d.sync += self.end.eq(self.ending)
        with m.If(self.begin):
            m.d.sync += [self.at_hand.eq(behind), busy.eq(1), waiting.eq(0)]
        with m.Elif(self.end):
            m.d.sync += busy.eq(0)
        with m.If(self.boxes.valid & self.boxes.ready):
            m.d.sync += [behind.eq(self.boxes.p), waiting.eq(1)]
        return m
