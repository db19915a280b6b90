"""An instruction: its fields, its bytes, its text."""

from collections.abc import Mapping
from dataclasses import dataclass

from .isa import HEADER, INSTRUCTION_BYTES, LAYOUTS, OPERATIONS, Opcode

__all__ = ["Instruction", "decode", "disassemble", "encode"]

#: Of each operation the fields, the header's first; programs have hundreds of thousands of instructions.
_FIELDS = {opcode: (*HEADER[1:], *layout) for opcode, layout in LAYOUTS.items()}
#: Field -> its least and its largest value.
_RANGES = {opcode: {field.name: (-(1 << field.bits - 1) if field.signed else field.minimum,
                                 (1 << field.bits - int(field.signed)) - 1) for field in fields}
           for opcode, fields in _FIELDS.items()}
_ZEROS = {opcode: dict.fromkeys(ranges, 0) for opcode, ranges in _RANGES.items()}
#: The name, the mask and the lowest bit of each field.
_PLACES = {opcode: [(field.name, (1 << field.bits) - 1, HEADER[0].bits + sum(f.bits for f in fields[:number]))
                    for number, field in enumerate(fields)] for opcode, fields in _FIELDS.items()}


@dataclass(frozen=True)
class Instruction:
    """An operation and its fields; fields not named are zero.

    Raises ValueError for an unknown field or a value that does not fit.
    """

    opcode: Opcode
    fields: Mapping[str, int]

    def __init__(self, opcode: Opcode, **fields: int) -> None:
        ranges = _RANGES[opcode]
        for name, value in fields.items():
            if name not in ranges:
                raise ValueError(f"{opcode.name} has no field {name!r}")
            low, high = ranges[name]
            if not low <= value <= high:
                raise ValueError(f"{opcode.name}.{name} must be in {low}..{high}, not {value}")
        object.__setattr__(self, "opcode", opcode)
        object.__setattr__(self, "fields", _ZEROS[opcode] | {name: int(value) for name, value in fields.items()})

    def __getitem__(self, name: str) -> int:
        return self.fields[name]

    def illegal(self) -> str | None:
        """Why hardware would refuse this instruction, or None."""
        for field in LAYOUTS[self.opcode]:
            if self.fields[field.name] < field.minimum and not field.signed:
                return f"{field.name} must be at least {field.minimum}"
            if field.kinds and self.fields[field.name] not in field.kinds:
                return f"{field.name} has no kind {self.fields[field.name]}"
        operation = OPERATIONS[self.opcode]
        needed = operation.some
        if needed and not any(self.fields[name] for name in needed):
            return f"one of {', '.join(needed)} must be at least 1"
        for field in HEADER[1:]:
            if self.fields[field.name] and field.name not in operation.tokens:
                return f"{field.name} must be 0"
        return None


def encode(instruction: Instruction) -> bytes:
    """The 16 bytes of an instruction."""
    word = int(instruction.opcode)
    for name, mask, position in _PLACES[instruction.opcode]:
        word |= (instruction.fields[name] & mask) << position
    return word.to_bytes(INSTRUCTION_BYTES, "little")


def decode(data: bytes) -> Instruction:
    """The instruction in 16 bytes.

    Raises ValueError for what the hardware's dispatcher finds ILLEGAL: unknown opcode, reserved bits, zero counts,
    foreign tokens.
    """
    word = int.from_bytes(data[:INSTRUCTION_BYTES], "little")
    number = word & (1 << HEADER[0].bits) - 1
    try:
        opcode = Opcode(number)
    except ValueError:
        raise ValueError(f"unknown opcode {number}") from None
    word >>= HEADER[0].bits
    values = {}
    for field in HEADER[1:] + LAYOUTS[opcode]:
        value = word & (1 << field.bits) - 1
        word >>= field.bits
        if field.signed and value >> field.bits - 1:
            value -= 1 << field.bits
        values[field.name] = value
    if word:
        raise ValueError(f"{opcode.name}: reserved bits are set")
    instruction = Instruction.__new__(Instruction)
    object.__setattr__(instruction, "opcode", opcode)
    object.__setattr__(instruction, "fields", values)
    reason = instruction.illegal()
    if reason:
        raise ValueError(f"{opcode.name}: {reason}")
    return instruction


def disassemble(instruction: Instruction) -> str:
    """One line: the operation, its tokens, its fields."""
    tokens = [f"{f.name}={instruction[f.name]}" if f.bits > 1 else f.name for f in HEADER[1:] if instruction[f.name]]
    fields = [f"{f.name}={instruction[f.name]}" for f in LAYOUTS[instruction.opcode]]
    return " ".join([f"{instruction.opcode.name.lower():12}", *fields, *(["|", *tokens] if tokens else [])]).rstrip()
