"""Where a remote device's registers and memory are among the addresses of the connection."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Callable

from .errors import TransportError

__all__ = ["ANSWER", "CHALLENGE", "INFO", "MAGIC", "STATE", "State", "Windows"]

#: Byte address at which a server of this package says what it has, and the first word there: "NPUD".
INFO, MAGIC = 0xF000_0000, 0x4E505544
#: Byte addresses there: a word that says whether the device is this client's (`State`), and the words by which a client
#: shows that it has the token (`access`).
STATE, CHALLENGE, ANSWER = INFO + 0x1008, INFO + 0x1100, INFO + 0x1200
#: Bytes of the register port, the page of limits included, and of a connection's addresses.
_PORT, _REACH = 0x2000, 1 << 32
#: Words at INFO, in order; ``bus`` has two, low and high.
_FIELDS = ("magic", "registers", "memory", "size", "bus_low", "bus_high", "wait", "reset")


class State(enum.IntEnum):
    """What a server answers at STATE. To a client that may have the device it gives it then."""

    YOURS = 0           # also of servers that have no such word
    LOCKED = 1          # the token has not been shown
    TAKEN = 2           # another client has the device
    STUCK = 3           # the device does not stop, so that nobody can have it


@dataclass(frozen=True)
class Windows:
    """Byte addresses of the connection: ``registers``; ``memory`` of ``size`` bytes, which the device sees at ``bus``.

    ``wait``: a word whose read waits a moment for the interrupt and says whether it came; ``reset``: one whose read
    resets the device and says whether it could. None where the other side has none.
    """

    registers: int
    memory: int
    size: int
    bus: int
    wait: int | None = None
    reset: int | None = None

    def __post_init__(self) -> None:
        """Raises TransportError for a window that the connection's addresses do not reach."""
        for name, first, size in (("registers", self.registers, _PORT), ("memory", self.memory, self.size)):
            if first < 0 or first % 4 or size < 1 or first + size > _REACH:
                raise TransportError(f"{name} at {first:#x}, {size:#x} bytes: must begin at a multiple of 4 and lie "
                                     f"below {_REACH:#x}", code="bad-url")

    @staticmethod
    def require_server(read: Callable[[int], int]) -> None:
        """Raises TransportError where the other side is no server of this package."""
        if read(INFO) != MAGIC:
            raise TransportError("the other side is no server of npudriver; say where the device is: "
                                 "?registers=0x...&memory=0x...&size=0x...", code="bad-url")

    @classmethod
    def found(cls, read: Callable[[int], int]) -> Windows:
        """Asked of a server of this package, which has lent the device."""
        words = {name: read(INFO + 4 * number) for number, name in enumerate(_FIELDS)}
        return cls(words["registers"], words["memory"], words["size"], words["bus_low"] | words["bus_high"] << 32,
                   words["wait"], words["reset"])

    def words(self) -> list[int]:
        """What a server answers from INFO on."""
        values = {"magic": MAGIC, "registers": self.registers, "memory": self.memory, "size": self.size,
                  "bus_low": self.bus & 0xFFFFFFFF, "bus_high": self.bus >> 32, "wait": self.wait or 0,
                  "reset": self.reset or 0}
        return [values[name] for name in _FIELDS]
