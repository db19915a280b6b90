"""Load context: an instruction of the load queue on its way from the half that asks to the half that delivers."""

from amaranth.hdl import Module, Value
from amaranth.lib import data

from ..arch.instruction_layout import QueuedInstruction, field_shape, is_operation, queue_layout
from ..arch.isa import Opcode, Queue
from ..config import NpuConfig
from ..lib.component import record

__all__ = ["EXTENT_BITS", "ExtentParts", "LoadContext", "LoadKind", "extent_of", "extent_parts"]

#: Bits of `LoadContext`'s ``extent``: a row's pixels, with three summands, or rows.
EXTENT_BITS = field_shape(Opcode.LOAD_SET, "cols").width + 1

#: Which load an instruction is; one that sets something is none.
LoadKind = data.StructLayout({op.name.lower(): 1 for op in (Opcode.LOAD_ACT, Opcode.LOAD_WGT, Opcode.LOAD_SIDE)})

#: An instruction, which load it is, and a number that follows from its fields: pixels of a row with its padding
#: (LOAD_SET); of a load, rows of a block with those of padding.
LoadContext = data.StructLayout({"entry": QueuedInstruction, "kind": LoadKind, "extent": EXTENT_BITS})

#: What an ``extent`` is the sum of: padding, data, padding.
ExtentParts = data.StructLayout({
    "before": field_shape(Opcode.LOAD_ACT, "pad_top"),
    "inside": field_shape(Opcode.LOAD_SET, "cols"),
    "behind": field_shape(Opcode.LOAD_ACT, "pad_bottom"),
})


def extent_parts(m: Module, word: Value, config: NpuConfig) -> data.View:
    """The parts of the instruction ``word``. They are chosen in one cycle and added in the next (`extent_of`)."""
    parts, instruction = record(ExtentParts, name="extent_parts"), data.View(queue_layout(Queue.LOAD), word)
    plain, act, side = instruction.load_set, instruction.load_act, instruction.load_side
    with m.If(is_operation(word, Opcode.LOAD_SET, config)):
        m.d.comb += [parts.before.eq(plain.pad_left), parts.inside.eq(plain.cols), parts.behind.eq(plain.pad_right)]
    with m.Elif(is_operation(word, Opcode.LOAD_ACT, config)):
        m.d.comb += [parts.before.eq(act.pad_top), parts.inside.eq(act.rows), parts.behind.eq(act.pad_bottom)]
    with m.Elif(is_operation(word, Opcode.LOAD_SIDE, config)):
        m.d.comb += parts.inside.eq(side.rows)
    with m.Else():
        m.d.comb += parts.inside.eq(1)
    return parts


def extent_of(parts: data.View) -> Value:
    """The ``extent`` of an instruction with these parts."""
    return parts.before + parts.inside + parts.behind
