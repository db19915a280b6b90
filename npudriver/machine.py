"""What the driver has to know of a machine: its registers, and by what it is told from others."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Mapping, Sequence

from .errors import PackageError
from .fields import Fields, parsed

__all__ = ["ErrorText", "Machine"]

_WORD = (1 << 32) - 1
#: Address of the last register that there can be; registers are in two pages of 4 KiB, those of limits in the second.
_LAST = 0x1FFC
_MAX_BEAT, _MAX_ALIGNMENT = 1 << 10, 1 << 20
#: What the driver asks for, of every machine.
_REGISTERS = frozenset({
    "control", "status", "error_code", "error_index", "program_low", "program_high", "program_length", "data_low",
    "data_high", "data_beats", "write_start", "timeout", "irq_enable"})
_CONTROL, _STATUS = frozenset({"START", "ABORT", "CLEAR"}), frozenset({"BUSY", "DONE", "ERROR"})


@dataclass(frozen=True)
class ErrorText:
    """An error code: its name and what it means."""

    name: str
    text: str


@dataclass(frozen=True)
class Machine:
    """Made from the tables that the hardware is made from; on a board, read from ``machine.json``.

    ``fingerprint``: what identifying registers must read as. ``registers``: name -> byte address; ``control``,
    ``status``: name of a bit -> its value; ``errors``: code -> name and text; ``operations``: opcode -> name;
    ``counters``: names, each in two registers ``counter_NAME_low`` and ``_high``. ``opcode_bits``: of an instruction,
    from its first byte's low end.
    """

    fingerprint: Mapping[str, int]
    registers: Mapping[str, int]
    control: Mapping[str, int]
    status: Mapping[str, int]
    errors: Mapping[int, ErrorText]
    operations: Mapping[int, str]
    counters: Sequence[str]
    beat_bytes: int
    address_bits: int
    instruction_bytes: int
    opcode_bits: int
    #: Bus addresses of programs and data are multiples of this.
    alignment: int
    macs: int

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "machine.json", remedy: str = "deploy the model again"
                  ) -> Machine:
        """``where``: what errors call it; ``remedy``: what they advise. Raises PackageError for what is no such thing.
        """
        try:
            header = Fields(parsed(text if isinstance(text, bytes) else text.encode()), where, remedy)
        except ValueError as error:
            raise PackageError(f"{where}: damaged ({error}); {remedy}") from None
        errors, operations = header.inner("errors"), header.inner("operations")
        machine = cls(
            fingerprint=header.numbers("fingerprint", 0, _WORD), registers=header.numbers("registers", 0, _LAST),
            control=header.numbers("control", 1, _WORD), status=header.numbers("status", 1, _WORD),
            errors={_code(code, where, remedy): _error_text(errors.inner(code)) for code in errors.names()},
            operations={_code(code, where, remedy): operations.text(code) for code in operations.names()},
            counters=header.texts("counters"), beat_bytes=header.power("beat_bytes", _MAX_BEAT),
            address_bits=header.integer("address_bits", 1, 64),
            instruction_bytes=header.power("instruction_bytes", _MAX_BEAT),
            opcode_bits=header.integer("opcode_bits", 1, 8), alignment=header.power("alignment", _MAX_ALIGNMENT),
            macs=header.integer("macs", 1, _WORD))
        header.end()
        counted = {f"counter_{name}_{half}" for name in (*machine.counters, "cycles") for half in ("low", "high")}
        for names, needed in ((machine.registers, {*_REGISTERS, *counted, *machine.fingerprint}),
                              (machine.fingerprint, {"config"}), (machine.control, _CONTROL),
                              (machine.status, _STATUS)):
            missing = sorted(needed - set(names))
            if missing:
                raise PackageError(f"{where}: {missing[0]!r} is missing; {remedy}")
        if any(address % 4 for address in machine.registers.values()):
            raise PackageError(f"{where}: a register lies between two words; {remedy}")
        return machine


def _code(text: str, where: str, remedy: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise PackageError(f"{where}: a code must be a number; {remedy}")
    return int(text)


def _error_text(entry: Fields) -> ErrorText:
    found = ErrorText(entry.text("name"), entry.text("text"))
    entry.end()
    return found
