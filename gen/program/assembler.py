"""Programs as text: one instruction a line, as `cores.arch.instruction.disassemble` writes it."""

import re
from collections.abc import Iterable, Iterator

from cores.arch.instruction import Instruction, decode, disassemble, encode
from cores.arch.isa import HEADER, INSTRUCTION_BYTES, LAYOUTS, Opcode
from cores.errors import NpugenError
from gen.files.printable import printable
from gen.program.program import Program

__all__ = ["AssemblyError", "assemble", "disassemble_code", "disassemble_program", "encode_all"]

_FLAGS = frozenset(field.name for field in HEADER[1:] if field.bits == 1)
_TOKENS = frozenset(field.name for field in HEADER[1:])


class AssemblyError(NpugenError, ValueError):
    """A line that is no instruction; the message begins with the line's number."""

    code = "bad-assembly"


def _parse(line: str) -> Instruction:
    words = line.split()
    try:
        opcode = Opcode[words[0].upper()]
    except KeyError:
        known = ", ".join(op.name.lower() for op in Opcode)
        raise ValueError(f"unknown operation {words[0]!r}; known: {known}") from None
    fields: dict[str, int] = {}
    after_bar = False
    for word in words[1:]:
        if word == "|" and not after_bar:
            after_bar = True
            continue
        match = re.fullmatch(r"(\w+)(?:=(-?\w+))?", word)
        if not match or (match[2] is None and match[1] not in _FLAGS):
            raise ValueError(f"expected name=value, not {word!r}")
        name = match[1]
        if after_bar != (name in _TOKENS):
            raise ValueError(f"{name} belongs {'before' if after_bar else 'after'} the bar")
        if name in fields:
            raise ValueError(f"{name} is given twice")
        fields[name] = 1 if match[2] is None else int(match[2], 0)
    missing = [field.name for field in LAYOUTS[opcode] if field.minimum and field.name not in fields]
    if missing:
        raise ValueError(f"{missing[0]} is missing")
    instruction = Instruction(opcode, **fields)
    reason = instruction.illegal()
    if reason:
        raise ValueError(reason)
    return instruction


def assemble(lines: Iterable[str]) -> list[Instruction]:
    """Instructions of text lines. ``#`` begins a comment, ``N:`` before an instruction (its index) is skipped.

    Raises AssemblyError that names the line.
    """
    instructions = []
    for number, line in enumerate(lines, 1):
        text = re.sub(r"^\s*\d+:", "", line.partition("#")[0]).strip()
        if not text:
            continue
        try:
            instructions.append(_parse(text))
        except ValueError as error:
            raise AssemblyError(f"line {number}: {error}") from None
    return instructions


def encode_all(instructions: Iterable[Instruction]) -> bytes:
    """The code bytes of a list of instructions."""
    return b"".join(map(encode, instructions))


def disassemble_code(code: bytes) -> Iterator[str]:
    """Lines that `assemble` reads back. Raises ValueError for bytes that are no instruction."""
    for start in range(0, len(code), INSTRUCTION_BYTES):
        yield disassemble(decode(code[start:start + INSTRUCTION_BYTES]))


def disassemble_program(program: Program) -> Iterator[str]:
    """A program's lines with index, and queue and layer as comments; `assemble` reads them back."""
    for index, (instruction, layer) in enumerate(zip(program.instructions, program.instruction_layers, strict=True)):
        place = instruction.opcode.queue.name.lower()
        if layer >= 0:
            place += f" {printable(program.layers[layer].name)}"
        yield f"{index:6}: {disassemble(instruction)}  # {place}"
