"""Load context: an instruction of the load queue on its way from the half that asks to the half that delivers."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data

from ..arch.instruction_layout import QueueEntry, field_shape, queue_layout
from ..arch.isa import Opcode, Queue

__all__ = ["EXTENT_BITS", "LoadContext", "extent_of"]

#: Bits of `LoadContext`'s ``extent``: a row's pixels, with three summands, or rows.
EXTENT_BITS = field_shape(Opcode.LOAD_SET, "cols").width + 1

#: An instruction and a number that follows from its fields: pixels of a row with its padding (LOAD_SET); of a load,
#: rows of a block with those of padding.
LoadContext = data.StructLayout({"entry": QueueEntry, "extent": EXTENT_BITS})


def extent_of(m: Module, word: data.View) -> Signal:
    """The ``extent`` of the instruction ``word``."""
    extent, instruction = Signal(EXTENT_BITS, name="extent"), data.View(queue_layout(Queue.LOAD), word)
    plain, act, side = instruction.load_set, instruction.load_act, instruction.load_side
    with m.Switch(act.opcode):
        with m.Case(Opcode.LOAD_SET):
            m.d.comb += extent.eq(plain.pad_left + plain.cols + plain.pad_right)
        with m.Case(Opcode.LOAD_ACT):
            m.d.comb += extent.eq(act.pad_top + act.rows + act.pad_bottom)
        with m.Case(Opcode.LOAD_SIDE):
            m.d.comb += extent.eq(side.rows)
        with m.Default():
            m.d.comb += extent.eq(1)
    return extent
