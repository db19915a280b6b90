"""Random instructions for tests: legal ones, and ones that break a single rule."""

import random

from cores.arch.instruction import Instruction, encode
from cores.arch.isa import HEADER, INSTRUCTION_BYTES, LAYOUTS, NOT_ALL_ZERO, TOKEN_FLAGS, Opcode, Queue
from cores.arch.units import is_supported, reserved_fields
from cores.config import NpuConfig
from cores.load.load_context import LoadKind
from cores.load.load_dispatch import Setting

__all__ = [
    "broken_word", "context_of", "extent_of", "random_instruction", "random_word", "setting_of", "span_of",
]

#: A machine without optional units.
_PLAIN = NpuConfig()
_HEADER_BITS = sum(field.bits for field in HEADER)


def random_instruction(queues: tuple[Queue, ...] = (Queue.LOAD, Queue.COMPUTE, Queue.STORE),
                       config: NpuConfig = _PLAIN) -> Instruction:
    """A legal instruction for one of ``queues``; its fields are often at their limits."""
    opcode = random.choice([op for op in Opcode if op.queue in queues and is_supported(op, config)])
    values = {}
    for field in HEADER[1:]:
        if field.name in TOKEN_FLAGS[opcode]:
            values[field.name] = random.randrange(1 << field.bits)
    reserved = reserved_fields(opcode, config)
    for field in (field for field in LAYOUTS[opcode] if field.name not in reserved):
        low = -(1 << field.bits - 1) if field.signed else field.minimum
        high = (1 << field.bits - int(field.signed)) - 1
        values[field.name] = random.choice([low, high, random.randint(low, high)])
    needed = NOT_ALL_ZERO.get(opcode)
    if needed and not any(values[name] for name in needed):
        values[random.choice(needed)] = 1
    return Instruction(opcode, **values)


def random_word() -> bytes:
    """A legal instruction with none to three bits flipped."""
    word = int.from_bytes(encode(random_instruction(tuple(Queue))), "little")
    for _ in range(random.randrange(4)):
        word ^= 1 << random.choice([random.randrange(_HEADER_BITS), random.randrange(8 * INSTRUCTION_BYTES)])
    return word.to_bytes(INSTRUCTION_BYTES, "little")


def broken_word() -> bytes:
    """An instruction with an unknown opcode, a reserved bit, a foreign token flag or zeros where they may not be."""
    instruction = random_instruction(tuple(Queue))
    opcode = instruction.opcode
    word = int.from_bytes(encode(instruction), "little")
    faults, position, needed = [], HEADER[0].bits, 0
    faults += [(15, code) for code in range(16) if code not in set(Opcode)]     # mask to clear, bits to set
    for field in HEADER[1:]:
        if field.name not in TOKEN_FLAGS[opcode]:
            faults.append((0, 1 << position + random.randrange(field.bits)))
        position += field.bits
    for field in LAYOUTS[opcode]:
        if field.minimum:
            faults.append(((1 << field.bits) - 1 << position, 0))
        if field.name in NOT_ALL_ZERO.get(opcode, ()):
            needed |= (1 << field.bits) - 1 << position
        position += field.bits
    if needed:
        faults.append((needed, 0))
    faults += [(0, 1 << bit) for bit in random.sample(range(position, 128), min(3, 128 - position))]
    cleared, added = random.choice(faults)
    return (word & ~cleared | added).to_bytes(INSTRUCTION_BYTES, "little")


def setting_of(opcode: Opcode) -> dict[str, int]:
    """What `LoadDispatch` says of an instruction that is taken: which of those that set something it is."""
    return {name: 1 for name in Setting.members if name == opcode.name.lower()}


def extent_of(instruction: Instruction) -> int:
    """The ``extent`` that goes with an instruction in a `LoadContext`."""
    match instruction.opcode:
        case Opcode.LOAD_SET:
            return instruction["pad_left"] + instruction["cols"] + instruction["pad_right"]
        case Opcode.LOAD_ACT:
            return instruction["pad_top"] + instruction["rows"] + instruction["pad_bottom"]
        case Opcode.LOAD_SIDE:
            return instruction["rows"]
    return 1


def context_of(index: int, instruction: Instruction) -> dict:
    """An instruction as the requester hands it on: a `LoadContext`."""
    return {"entry": {"index": index, "word": int.from_bytes(encode(instruction), "little")},
            "kind": {name: int(name == instruction.opcode.name.lower()) for name in LoadKind.members},
            "extent": extent_of(instruction)}


def span_of(gather: Instruction, lanes: int) -> int:
    """Beats of ``lanes`` bytes from a row's first, padding in front included, to the last run's end, of a LOAD_GATHER.
    """
    first = gather["start"] % lanes if gather["start"] < 0 else gather["start"]
    return -(-(first + (gather["outputs"] - 1) * gather["step"] + min(gather["length"], lanes)) // lanes)
