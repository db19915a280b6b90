"""Amaranth layouts made from the instruction set's one table."""

from amaranth.hdl import Shape, Value, signed, unsigned
from amaranth.lib import data

from .isa import HEADER, INSTRUCTION_BYTES, LAYOUTS, Field, Opcode, Queue

__all__ = ["INDEX_BITS", "QueueEntry", "field_shape", "instruction_layout", "opcode_of", "queue_layout"]

#: Bits of an instruction's index: programs of up to 16 M instructions.
INDEX_BITS = 24


def _shape(field: Field) -> Shape:
    return signed(field.bits) if field.signed else unsigned(field.bits)


def instruction_layout(opcode: Opcode) -> data.StructLayout:
    """The 128-bit layout of one operation: header, fields, and ``reserved`` above them where bits are left."""
    members: dict[str, Shape] = {field.name: _shape(field) for field in HEADER + LAYOUTS[opcode]}
    rest = 8 * INSTRUCTION_BYTES - sum(shape.width for shape in members.values())
    if rest:
        members["reserved"] = unsigned(rest)
    return data.StructLayout(members)


def queue_layout(queue: Queue) -> data.UnionLayout:
    """An instruction of a queue, seen as each of its operations: ``load_act``, ``load_wgt`` ..."""
    return data.UnionLayout({op.name.lower(): instruction_layout(op) for op in Opcode if op.queue == queue})


def field_shape(opcode: Opcode, name: str) -> Shape:
    """Shape of one field of an operation."""
    return instruction_layout(opcode).members[name]


def opcode_of(word: Value | data.View) -> Value:
    """The opcode of an instruction's word."""
    return Value.cast(word)[:HEADER[0].bits]


#: What travels from the dispatcher to an engine.
QueueEntry = data.StructLayout({"index": unsigned(INDEX_BITS), "word": unsigned(8 * INSTRUCTION_BYTES)})
