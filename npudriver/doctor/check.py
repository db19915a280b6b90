"""What every check is given, and how it fails."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Callable, Iterator, Sequence

from ..backend import Backend, Buffer
from ..bringup import Trial
from ..machine import Machine

__all__ = ["Bench", "CheckError"]


class CheckError(Exception):
    """A check's outcome: what was ``found``, what is most likely ``wrong``, and what to do ``next``; never shown as it
    is."""

    def __init__(self, found: str, *, wrong: str, next: str) -> None:
        super().__init__(found)
        self.found, self.wrong, self.next = found, wrong, next


@dataclass(frozen=True)
class Bench:
    """A device that nobody else uses. ``patience``: seconds that a tiny program may take. ``witness``: called where a
    program has not ended as it should, before it is stopped and its traces are cleared. ``trials``: programs for its
    engines.
    """

    backend: Backend
    machine: Machine
    patience: float = 1.0
    witness: Callable[[], None] = lambda: None
    trials: Sequence[Trial] = ()

    def read(self, name: str) -> int:
        return self.backend.read32(self.machine.registers[name])

    def write(self, name: str, value: int) -> None:
        self.backend.write32(self.machine.registers[name], value)

    @contextmanager
    def memory(self, size: int) -> Iterator[Buffer]:
        """Shared memory for the time of a check."""
        buffer = self.backend.allocate(size, self.machine.alignment)
        try:
            yield buffer
        finally:
            buffer.free()
