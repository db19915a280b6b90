"""What only machines with an optional unit have of the instruction set: operations, fields, and kinds."""

from itertools import combinations

from .instruction import Instruction
from .isa import HEADER_BITS, LAYOUTS, OPERATIONS, Field, Kind, Opcode

__all__ = ["is_supported", "kinds_of", "missing", "reserved_fields", "telling_bits", "used_bits"]


def _has(unit: str, config: object) -> bool:
    return not unit or bool(getattr(config, unit))


def is_supported(opcode: Opcode, config: object) -> bool:
    """Whether a machine of this `NpuConfig` has the operation."""
    return _has(OPERATIONS[opcode].unit, config)


def reserved_fields(opcode: Opcode, config: object) -> frozenset[str]:
    """Fields of an operation that must be zero in a machine of this `NpuConfig`."""
    return frozenset(field.name for field in LAYOUTS[opcode] if not _has(field.unit, config))


def kinds_of(field: Field, config: object) -> tuple[Kind, ...]:
    """What a field chooses from in a machine of this `NpuConfig`."""
    return tuple(kind for kind in field.kinds if _has(kind.unit, config))


def telling_bits(chosen: Kind | Opcode, config: object) -> dict[int, int]:
    """The fewest bits, and their values, that tell a kind from all others of its field, or an operation from all others
    of its queue, that a machine of this `NpuConfig` has.
    """
    rivals: list[Kind] | list[Opcode]
    if isinstance(chosen, Opcode):
        rivals = [op for op in Opcode if op.queue == chosen.queue and is_supported(op, config)]
    else:
        rivals = [kind for kind in type(chosen) if _has(kind.unit, config)]
    differences = [chosen ^ other for other in rivals if other != chosen]
    width = max(difference.bit_length() for difference in [0, *differences])
    return next({bit: chosen >> bit & 1 for bit in bits} for count in range(width + 1)
                for bits in combinations(range(width), count)
                if all(any(difference >> bit & 1 for bit in bits) for difference in differences))


def used_bits(opcode: Opcode, config: object) -> int:
    """Bits of an operation up to its last field that is not reserved in a machine of this `NpuConfig`."""
    position = used = HEADER_BITS
    reserved = reserved_fields(opcode, config)
    for field in LAYOUTS[opcode]:
        position += field.bits
        if field.name not in reserved:
            used = position
    return used


def missing(instruction: Instruction, config: object) -> str | None:
    """What makes a legal instruction an illegal one to a machine of this `NpuConfig`, or None."""
    opcode = instruction.opcode
    if not is_supported(opcode, config):
        return f"this machine has no {opcode.name}"
    for field in LAYOUTS[opcode]:
        if not instruction[field.name]:
            continue
        if not _has(field.unit, config):
            return f"this machine's {opcode.name} has no {field.name}"
        if field.kinds and instruction[field.name] not in kinds_of(field, config):
            kind = next(one for one in field.kinds if one == instruction[field.name])
            return f"this machine's {opcode.name} has no {field.name} {kind.name}"
    return None
