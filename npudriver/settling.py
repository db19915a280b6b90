"""Waiting for a machine that was told to stop."""

from __future__ import annotations

from .backend import Backend
from .registers import Registers

__all__ = ["FIRST_PAUSE", "LONGEST_PAUSE", "settles"]

#: Seconds between two polls, at first and at last.
FIRST_PAUSE, LONGEST_PAUSE = 20e-6, 1e-3
#: Seconds that a machine may take to end its bus transfers once it is told to stop.
_SETTLING = 1.0


def settles(backend: Backend, registers: Registers) -> bool:
    """Whether the machine is at rest, after a while if need be. Raises DeviceError, TransportError."""
    deadline, pause = backend.time() + _SETTLING, FIRST_PAUSE
    while registers.status() & registers.busy:
        if backend.time() >= deadline:
            return False
        backend.pause(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    return True
