"""The checks in their order, and how they are gone through."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Callable, Iterator

from ..errors import DriverError
from .at_rest import at_rest
from .check import Bench, CheckError
from .engines import engine
from .fetch import fetch, interrupt
from .host_memory import host_memory
from .identity import identity
from .register_bits import register_bits

__all__ = ["Check", "Finding", "LADDER", "examine"]


@dataclass(frozen=True)
class Check:
    """``run`` says what it found, or raises CheckError."""

    name: str
    run: Callable[[Bench], str]


@dataclass(frozen=True)
class Finding:
    """``wrong``, ``next``: "" where all is well."""

    check: str
    found: str
    wrong: str = ""
    next: str = ""

    @property
    def ok(self) -> bool:
        return not self.wrong

    def __str__(self) -> str:
        if self.ok:
            return f"ok     {self.check}: {self.found}"
        return f"FAILED {self.check}: {self.found}; most likely {self.wrong}; next: {self.next}"


#: A further check is one entry. The engines follow, each by a program of its own.
LADDER = (
    Check("identity", identity), Check("rest", at_rest), Check("registers", register_bits),
    Check("memory", host_memory), Check("fetch", fetch), Check("interrupt", interrupt),
)


def examine(bench: Bench) -> Iterator[Finding]:
    """Findings as they are made; the first that fails is the last."""
    engines = (Check(trial.name, partial(engine, trial=trial)) for trial in bench.trials)
    for check in (*LADDER, *engines):
        try:
            yield Finding(check.name, check.run(bench))
        except CheckError as failure:
            yield Finding(check.name, failure.found, failure.wrong, failure.next)
            return
        except DriverError as error:
            yield Finding(check.name, str(error), "the way to the device fails", "see docs/driver.md for its back end")
            return
