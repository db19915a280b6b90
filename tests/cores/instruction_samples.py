"""Random instructions for tests: legal ones, and ones that break a single rule."""

import random

from cores.arch.instruction import Instruction, encode
from cores.arch.isa import HEADER, HEADER_BITS, INSTRUCTION_BYTES, LAYOUTS, OPERATIONS, Field, Opcode, Queue
from cores.arch.isa_features import is_supported, kinds_of, reserved_fields
from cores.config import NpuConfig
from cores.load.load_context import LoadKind
from cores.load.load_dispatch import Setting

__all__ = [
    "broken_word", "context_of", "extent_of", "random_instruction", "random_word", "setting_of", "span_of",
]

#: A machine without optional units.
_PLAIN = NpuConfig()


def _random_value(field: Field, config: NpuConfig) -> int:
    if field.kinds:
        return random.choice(kinds_of(field, config))
    low = -(1 << field.bits - 1) if field.signed else field.minimum
    high = (1 << field.bits - int(field.signed)) - 1
    return random.choice([low, high, random.randint(low, high)])


def random_instruction(queues: tuple[Queue, ...] = (Queue.LOAD, Queue.COMPUTE, Queue.STORE),
                       config: NpuConfig = _PLAIN) -> Instruction:
    """A legal instruction for one of ``queues``; its fields are often at their limits."""
    opcode = random.choice([op for op in Opcode if op.queue in queues and is_supported(op, config)])
    values = {}
    for field in HEADER[1:]:
        if field.name in OPERATIONS[opcode].tokens:
            values[field.name] = random.randrange(1 << field.bits)
    reserved = reserved_fields(opcode, config)
    values |= {field.name: _random_value(field, config) for field in LAYOUTS[opcode] if field.name not in reserved}
    needed = OPERATIONS[opcode].some
    if needed and not any(values[name] for name in needed):
        values[random.choice(needed)] = 1
    return Instruction(opcode, **values)


def random_word(config: NpuConfig = _PLAIN) -> bytes:
    """A legal instruction with none to three bits flipped."""
    word = int.from_bytes(encode(random_instruction(tuple(Queue), config)), "little")
    for _ in range(random.randrange(4)):
        word ^= 1 << random.choice([random.randrange(HEADER_BITS), random.randrange(8 * INSTRUCTION_BYTES)])
    return word.to_bytes(INSTRUCTION_BYTES, "little")


def broken_word(config: NpuConfig = _PLAIN) -> bytes:
    """An instruction with an unknown opcode or kind, a reserved bit, a foreign token flag or zeros where they may not
    be.
    """
    instruction = random_instruction(tuple(Queue), config)
    operation = OPERATIONS[instruction.opcode]
    word = int.from_bytes(encode(instruction), "little")
    # Of each fault the mask to clear and the bits to set; of the many unknown opcodes three, lest there be no others.
    opcodes = 1 << HEADER[0].bits
    unknown = random.sample([code for code in range(opcodes) if code not in set(Opcode)], 3)
    faults, position, needed = [(opcodes - 1, code) for code in unknown], HEADER[0].bits, 0
    for field in HEADER[1:]:
        if field.name not in operation.tokens:
            faults.append((0, 1 << position + random.randrange(field.bits)))
        position += field.bits
    for field in operation.fields:
        mask = (1 << field.bits) - 1 << position
        if field.minimum:
            faults.append((mask, 0))
        if field.kinds and (others := set(range(1 << field.bits)) - set(field.kinds)):
            faults.append((mask, random.choice(sorted(others)) << position))
        if field.name in operation.some:
            needed |= mask
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
