"""What a device has counted of a model's inferences: kept in a file, to be drawn beside a simulation's."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from cores.arch.registers import COUNTERS
from cores.errors import NpugenError
from gen.files.write import write_file
from gen.run.runner import Run
from npudriver.files import read_file

__all__ = ["Counted", "CountedError", "counted", "read_counted", "write_counted"]

_FORMAT = 1
_Mean = Annotated[float, Meta(ge=0, lt=1 << 53)]
_Cycles = Annotated[int, Meta(ge=1, lt=1 << 53)]


class CountedError(NpugenError, ValueError):
    """A file without counters, or of something else than it is read for."""

    code = "damaged-counters"


@dataclass(frozen=True, kw_only=True)
class Counted:
    """``device``: as --target named it; ``machine``: digest of its configuration; ``model_sha256``: of the model's or
    the program's file. ``cycles``: of each sample on the accelerator; ``counters``: by the names of
    `cores.arch.registers.COUNTERS`, of an inference with all its segments, on average.
    """

    format: int
    device: str
    machine: Annotated[int, Meta(ge=0, lt=1 << 32)]
    model_sha256: str
    cycles: Annotated[list[_Cycles], Meta(min_length=1)]
    counters: dict[str, _Mean]

    @property
    def mean(self) -> float:
        """Cycles of an inference."""
        return sum(self.cycles) / len(self.cycles)


def counted(run: Run, device: str, machine: int, model_sha256: str) -> Counted:
    """Of a run on a device that was opened to count. Raises CountedError for a device that has not counted."""
    found = [one.counters for one in run.inferences]
    if not all(one.get("cycles") and one.get("compute_busy") for one in found):
        raise CountedError(f"{device} does not count the cycles of its engines, nor does the functional simulation; "
                           "board:rtl does", code="no-counters")
    means = {name: sum(one[name] for one in found) / len(found) for name in COUNTERS}
    return Counted(format=_FORMAT, device=device, machine=machine, model_sha256=model_sha256,
                   cycles=[one["cycles"] for one in found], counters=means)


def write_counted(path: Path, one: Counted) -> None:
    """Raises OSError."""
    write_file(path, json.dumps(asdict(one), indent=1) + "\n")


def read_counted(path: Path, machine: int, model_sha256: str) -> Counted:
    """What `write_counted` wrote, of the same model on the same machine. Raises CountedError, OSError."""
    again = "write it again with `run --target board --counters`"
    try:
        found = msgspec.json.decode(read_file(path), type=Counted)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise CountedError(f"{path}: no counters of a run ({error}); {again}") from None
    if found.format != _FORMAT or found.counters.keys() != set(COUNTERS):
        raise CountedError(f"{path}: counters of another version of npugen; {again}")
    _require_same(path, {"model": (found.model_sha256, model_sha256), "machine": (found.machine, machine)})
    return found


def _require_same(path: Path, facts: Mapping[str, tuple[object, object]]) -> None:
    for name, (there, here) in facts.items():
        if there != here:
            raise CountedError(f"{path}: these are counters of another {name}; run the same file on the device",
                               code="other-run")
