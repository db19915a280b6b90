"""Amaranth layouts made from the instruction set's one table."""

from typing import Any

from amaranth.hdl import Cat, Const, Shape, Value, signed, unsigned
from amaranth.lib import data

from .isa import HEADER, INSTRUCTION_BYTES, LAYOUTS, Field, Kind, Opcode, Queue
from .isa_features import reserved_fields, telling_bits

__all__ = [
    "INDEX_BITS", "QueuedInstruction", "bits_of", "field_or_zero", "field_shape", "flags_of", "instruction_layout",
    "is_kind", "is_operation", "kind_flags", "opcode_of", "queue_layout",
]

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
    return Shape.cast(instruction_layout(opcode).members[name])


def bits_of(opcode: Opcode, name: str, config: object) -> int:
    """Bits of a field; in a machine that does not have it, none."""
    return 0 if name in reserved_fields(opcode, config) else field_shape(opcode, name).width


def field_or_zero(word: Any, opcode: Opcode, name: str, config: object) -> Value:
    """A field of a legal instruction; in a machine that does not have it, zero."""
    return Const(0) if name in reserved_fields(opcode, config) else word[name]


def opcode_of(word: Value | data.View) -> Value:
    """The opcode of an instruction's word."""
    return Value.cast(word)[:HEADER[0].bits]


def is_operation(word: Value | data.View, opcode: Opcode, config: object) -> Value:
    """Whether a legal instruction of a queue is this one of its operations, by no more bits than it takes."""
    return _equals(opcode_of(word), opcode, config)


def is_kind(field: Value, kind: Kind, config: object) -> Value:
    """Whether a legal instruction's field names this kind, by no more bits than the machine needs to know."""
    if kind.unit and not getattr(config, kind.unit):
        return Const(0)
    return _equals(field, kind, config)


def _equals(field: Value, chosen: Kind | Opcode, config: object) -> Value:
    return Cat(field[bit] == value for bit, value in telling_bits(chosen, config).items()).all()


def kind_flags(kinds: type[Kind], config: object) -> data.StructLayout:
    """A bit for each trait of the kinds that the machine has, but of the one that is zero: ``indexed``, ``window`` ...
    """
    return data.StructLayout({trait: 1 for kind in kinds if kind and (not kind.unit or getattr(config, kind.unit))
                              for trait in kind.traits})


def flags_of(field: Value, kinds: type[Kind], config: object) -> Value:
    """`kind_flags` of a legal instruction's field."""
    return Cat(Cat(is_kind(field, kind, config) for kind in kinds if kind and trait in kind.traits).any()
               for trait in kind_flags(kinds, config).members)


#: What travels from the dispatcher to an engine.
QueuedInstruction = data.StructLayout({"index": unsigned(INDEX_BITS), "word": unsigned(8 * INSTRUCTION_BYTES)})
