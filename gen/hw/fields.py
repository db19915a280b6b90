# amaranth: UnusedElaboratable=no
"""The bits of every register, for the formats that describe registers by their fields."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntFlag

from cores.arch.axi import BOUNDARY_BYTES
from cores.arch.error_codes import ERROR_CODES
from cores.arch.instruction_layout import INDEX_BITS
from cores.arch.registers import LANES, MAGIC, REGION_BITS, VERSION, Control, Register, Status, registers_of
from cores.arch.stochastic import LENGTH_BITS
from cores.config import NpuConfig
from cores.control.register_file import RegisterFile

__all__ = ["DescribedRegister", "Field", "described_registers"]

_BITS = 32


@dataclass(frozen=True)
class Field:
    """Bits ``low`` to ``high`` of a register. ``constant``: the hardware never changes it; it reads as ``reset``."""

    name: str
    low: int
    high: int
    access: str
    reset: int = 0
    constant: bool = False
    text: str = ""

    @property
    def bits(self) -> int:
        return self.high - self.low + 1


@dataclass(frozen=True)
class DescribedRegister:
    """A register of `cores.arch.registers` with its fields, lowest first; bits in none of them read as zero."""

    register: Register
    fields: tuple[Field, ...]

    @property
    def reset(self) -> int:
        """All 32 bits after reset."""
        return sum(field.reset << field.low for field in self.fields)


def described_registers(config: NpuConfig) -> tuple[DescribedRegister, ...]:
    """Every register of a machine, in the order of their addresses."""
    special = _special(config)
    return tuple(DescribedRegister(register, special.get(register.name) or (_whole(register),))
                 for register in registers_of(config))


def _whole(register: Register) -> Field:
    return Field("value", 0, _BITS - 1, "read-write" if register.writable else "read-only")


def _special(config: NpuConfig) -> dict[str, tuple[Field, ...]]:
    """Fields of the registers that are not one number of 32 bits that the machine changes."""
    timeout = RegisterFile(config).signature.members["timeout"].init
    low = (Field("page", (BOUNDARY_BYTES - 1).bit_length(), _BITS - 1, "read-write", text="low half, a whole page"),)
    high_bits = config.address_width - _BITS
    high = (Field("value", 0, high_bits - 1, "read-write", text="high half") if high_bits else _constant("value", 0),)
    return {
        "id": (_constant("value", MAGIC),),
        "version": (_constant("value", VERSION),),
        "config": (_constant("value", config.digest),),
        "lanes": tuple(Field(name, 8 * number, 8 * number + 7, "read-only", getattr(config, name), True)
                       for number, name in enumerate(LANES)),
        "control": tuple(_flags(Control, "write-only")),
        "status": tuple(_flags(Status, "read-only")),
        "error_code": (Field("code", 0, max(ERROR_CODES).bit_length() - 1, "read-only",
                             text=", ".join(f"{code.value} {code.name}" for code in ERROR_CODES)),),
        "error_index": (Field("index", 0, INDEX_BITS - 1, "read-only"),),
        "program_low": low, "program_high": high, "data_low": low, "data_high": high,
        "program_length": (Field("value", 0, INDEX_BITS - 1, "read-write"),),
        "data_beats": (Field("value", 0, REGION_BITS - 1, "read-write"),),
        "write_start": (Field("value", 0, REGION_BITS - 1, "read-write"),),
        "timeout": (Field("value", 0, _BITS - 1, "read-write", int(timeout)),),
        "irq_enable": (Field("enable", 0, 0, "read-write"),),
        "stream_shift": (Field("value", 0, LENGTH_BITS - 1, "read-write"),),
    }


def _constant(name: str, value: int) -> Field:
    return Field(name, 0, _BITS - 1, "read-only", value, True)


def _flags(flags: type[IntFlag], access: str) -> Iterable[Field]:
    for flag in flags:
        bit = flag.value.bit_length() - 1
        yield Field(str(flag.name).lower(), bit, bit, access)
