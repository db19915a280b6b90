"""What a device shows of itself, kept in a file: its registers, and its counters at two times.

A dump is taken of any machine, also of one that hangs: registers are read, none is written, and what does not identify
itself is left alone, as reading may change what another peripheral holds. `python -m gen explain` says what it means.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Mapping, Sequence

from .backend import Backend
from .errors import DriverError, PackageError
from .fields import Fields, parsed
from .machine import Machine

__all__ = ["LEFT_OUT", "Dump", "Sample", "take_dump"]

_FORMAT, _VERSION = "npugen dump", 1
_REMEDY = "take the dump again"
_WORD, _LONG = (1 << 32) - 1, (1 << 64) - 1
#: Registers that must be right before others are read.
_KIND = ("id", "version")
#: What names of registers begin with that are no state: commands, which read as zero, and counters, which samples have.
LEFT_OUT = ("control", "counter_")
#: Seconds between two samples: what moves at all has moved then.
_APART = 1e-3


@dataclass(frozen=True)
class Sample:
    """Status and counters at a time: ``microseconds`` since the first sample, of the device's time."""

    microseconds: int
    status: int
    counters: Mapping[str, int]


@dataclass(frozen=True)
class Dump:
    """``machine``: the one that the device should be; ``registers``: name -> value, without commands and counters.

    ``samples``: none of a device that is no such machine, else two, unless the way to it failed: ``trouble`` says how
    then, and is "" else.
    """

    machine: Machine
    registers: Mapping[str, int]
    samples: Sequence[Sample]
    trouble: str = ""

    def to_json(self) -> str:
        fields = {"format": _FORMAT, "version": _VERSION, **asdict(self)}
        return json.dumps(fields, indent=1) + "\n"

    @classmethod
    def from_json(cls, content: bytes, where: str) -> Dump:
        """``where``: what errors call it. Raises PackageError for what is no dump, or is damaged."""
        try:
            entry = Fields(parsed(content), where, _REMEDY)
            found = entry.take("format"), entry.take("version")
            if found[0] != _FORMAT:
                raise PackageError(f"{where}: not a dump; `python3 -m npudriver dump` makes one", code="damaged-dump")
            if found[1] != _VERSION or isinstance(found[1], bool):
                raise PackageError(f"{where}: made by another version; {_REMEDY}", code="damaged-dump")
            machine = Machine.from_json(json.dumps(entry.take("machine")), f"{where}: machine", _REMEDY)
            dump = cls(machine, entry.numbers("registers", 0, _WORD),
                       [_sample(sample) for sample in entry.objects("samples")], entry.text("trouble"))
            entry.end()
            dump._require_sense(where)
        except ValueError as error:
            raise PackageError(f"{where}: damaged ({' '.join(str(error).split())[:200]}); {_REMEDY}",
                               code="damaged-dump") from None
        except PackageError as error:
            raise PackageError(str(error), code="damaged-dump") from None
        return dump

    def _require_sense(self, where: str) -> None:
        names = set(self.machine.registers)
        unknown = sorted(set(self.registers) - names) + sorted(
            name for sample in self.samples for name in set(sample.counters) ^ set(self.machine.counters))
        if unknown:
            raise PackageError(f"{where}: {unknown[0]!r} is missing, or not the machine's; {_REMEDY}")
        if not self.trouble and len(self.samples) not in (0, 2):
            raise PackageError(f"{where}: has {len(self.samples)} samples, not 2; {_REMEDY}")
        missing = sorted(names - set(self.registers)) if self.samples and not self.trouble else []
        missing = [name for name in missing if not name.startswith(LEFT_OUT)]
        if missing:
            raise PackageError(f"{where}: register {missing[0]} is missing; {_REMEDY}")


def _sample(entry: Fields) -> Sample:
    found = Sample(entry.integer("microseconds", 0, _LONG), entry.integer("status", 0, _WORD),
                   entry.numbers("counters", 0, _LONG))
    entry.end()
    return found


def take_dump(backend: Backend, machine: Machine) -> Dump:
    """Read what is safe to read. A way that fails is in the dump, and no error."""
    registers: dict[str, int] = {}
    samples: list[Sample] = []
    trouble = ""

    def read(name: str) -> int:
        return backend.read32(machine.registers[name])

    def sample(began: float) -> None:
        # A counter's low half first: it holds the high one.
        counters = {name: read(f"counter_{name}_low") | read(f"counter_{name}_high") << 32
                    for name in machine.counters}
        samples.append(Sample(max(0, round((backend.time() - began) * 1e6)), read("status"), counters))

    try:
        for name in machine.fingerprint:
            registers[name] = read(name)
        if all(registers[name] == machine.fingerprint[name] for name in _KIND if name in registers):
            began = backend.time()
            sample(began)
            for name in machine.registers:
                if name not in registers and not name.startswith(LEFT_OUT):
                    registers[name] = read(name)
            backend.pause(_APART)
            sample(began)
    except DriverError as error:
        trouble = str(error)
    return Dump(machine, registers, samples, trouble)
