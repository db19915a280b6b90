"""What the driver has to know of a machine: its registers, and by what it is told from others."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Mapping, Sequence

from .errors import PackageError

__all__ = ["ErrorText", "Machine"]


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
    def from_json(cls, text: str) -> Machine:
        """Raises PackageError for what is no such thing."""
        try:
            values: dict[str, Any] = json.loads(text)
            if not isinstance(values, dict) or set(values) != {field.name for field in fields(cls)}:
                raise PackageError("machine.json: not of this version of the driver; deploy the program again")
            values["errors"] = {int(code): ErrorText(**entry) for code, entry in values["errors"].items()}
            values["operations"] = {int(code): name for code, name in values["operations"].items()}
            return cls(**values)
        except (ValueError, TypeError, AttributeError) as error:
            raise PackageError(f"machine.json: damaged ({error}); deploy the program again") from None
