"""What only machines with an optional unit have of the instruction set: operations, and fields."""

from collections.abc import Mapping

from .instruction import Instruction
from .isa import HEADER_BITS, LAYOUTS, Opcode

__all__ = [
    "FIELD_FEATURES", "absent_fields", "as_taken", "is_supported", "missing", "reserved_fields", "used_bits",
]

#: Operations and fields that only a machine with an optional unit has: the field of `NpuConfig` that says so. Elsewhere
#: the operation is illegal, and the hardware takes the field for zero.
_OPCODE_FEATURES: Mapping[Opcode, str] = {Opcode.LOAD_GATHER: "gather", Opcode.LOAD_WINOGRAD: "winograd",
                                         Opcode.STORE_TABLE: "table"}
FIELD_FEATURES: Mapping[Opcode, Mapping[str, str]] = {
    Opcode.LOAD_SET: {"sign": "binary_rows", "pad_zero": "binary_rows"},
    Opcode.COMPUTE_SET: dict.fromkeys(("spread", "window", "alternate", "shift"), "depthwise"),
    Opcode.COMPUTE: {"binary": "binary_rows", "acc_base": "winograd"},
    Opcode.STORE_SET: {"spread": "depthwise", "alternate": "depthwise", "binary": "binary_rows",
                       "winograd": "winograd", "local": "local_store"},
}
#: The same of fields that are among the reserved bits of machines without the unit.
_LATER_FIELDS: Mapping[Opcode, Mapping[str, str]] = {
    Opcode.STORE_ADD: {"product": "product", "broadcast": "product"},
    Opcode.COMPUTE: dict.fromkeys(("stochastic", "length", "made"), "stochastic_rows"),
    Opcode.LOAD_SET: {"pair": "binary_rows"},
}


def is_supported(opcode: Opcode, config: object) -> bool:
    """Whether a machine of this `NpuConfig` has the operation."""
    return opcode not in _OPCODE_FEATURES or bool(getattr(config, _OPCODE_FEATURES[opcode]))


def reserved_fields(opcode: Opcode, config: object) -> frozenset[str]:
    """Fields of an operation whose bits are reserved in a machine of this `NpuConfig`."""
    later = _LATER_FIELDS.get(opcode, {})
    return frozenset(name for name, feature in later.items() if not getattr(config, feature))


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
    reserved = sorted(name for name in reserved_fields(opcode, config) if instruction[name])
    return f"this machine's {opcode.name} has no {reserved[0]}" if reserved else None


def absent_fields(instruction: Instruction, config: object) -> dict[str, str]:
    """Fields that are not zero and that a machine of this `NpuConfig` takes for zero, and what each needs."""
    return {name: feature for name, feature in FIELD_FEATURES.get(instruction.opcode, {}).items()
            if instruction[name] and not getattr(config, feature)}


def as_taken(instruction: Instruction, config: object) -> Instruction:
    """The instruction as a machine of this `NpuConfig` understands it."""
    absent = absent_fields(instruction, config)
    if not absent:
        return instruction
    return Instruction(instruction.opcode, **{**instruction.fields, **dict.fromkeys(absent, 0)})
