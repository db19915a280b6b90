"""What a governor knows of the charge: read from Linux, asked of a function, or reckoned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Callable

from .errors import DriverError
from .files import read_text, reason
from .levels import FULL

__all__ = ["Battery", "BatteryError", "ModelledBattery", "PowerSupply", "ReadBattery"]

#: Of a file: characters that are looked at, digits of a number, and what may stand around it, as in C.
_MOST_TEXT, _MOST_DIGITS, _SPACES = 64, 18, " \t\n\v\f\r"
#: Pairs of files, in the order in which they are tried: what there is, and what a full battery has.
_PAIRS = (("energy_now", "energy_full"), ("charge_now", "charge_full"))
#: Percent of a full battery: what every driver of Linux has.
_PERCENT = "capacity"


class BatteryError(DriverError):
    """The charge cannot be read."""

    code = "no-charge"


class Battery(ABC):
    """A charge."""

    @abstractmethod
    def charge(self) -> int:
        """In millionths of a full battery. Raises BatteryError."""

    def spend(self, energy: int) -> None:  # noqa: B027 -- what is read knows by itself
        """An inference of a level of so much energy has been made."""


class ReadBattery(Battery):
    """What a function says, in millionths of a full battery: of a fuel gauge that the user's own code reads."""

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read

    def charge(self) -> int:
        found = self._read()
        if not isinstance(found, int) or not 0 <= found:
            raise BatteryError(f"a charge must be a whole number of 0 or more millionths, not {found!r}")
        return min(found, FULL)


class PowerSupply(Battery):
    """A battery as Linux shows it in a folder of /sys/class/power_supply.

    ``energy_now`` of ``energy_full``, else ``charge_now`` of ``charge_full``, else ``capacity``, whole percents: the
    first that is there, and no other where that cannot be read.
    """

    def __init__(self, folder: Path | str) -> None:
        self._folder = Path(folder)
        if not self._folder.is_dir():
            raise BatteryError(f"{self._folder}: no such power supply")

    def charge(self) -> int:
        for now, full in _PAIRS:
            if (self._folder / now).exists() and (self._folder / full).exists():
                most = self._number(full)
                if not most:
                    raise BatteryError(f"{self._folder / full}: a full battery that has nothing")
                return min(FULL, self._number(now) * FULL // most)
        return min(FULL, self._number(_PERCENT) * FULL // 100)

    def _number(self, name: str) -> int:
        path = self._folder / name
        try:
            text = read_text(path)[:_MOST_TEXT].strip(_SPACES)
        except (OSError, ValueError) as error:
            raise BatteryError(f"{path}: {reason(error)}") from None
        if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS:
            raise BatteryError(f"{path}: must be a whole number of 0 or more, not {text!r}")
        return int(text)


class ModelledBattery(Battery):
    """What is left of ``full``, in the unit of the levels' energies, when each inference takes what its level says.

    ``left``: at first, in that unit; None for a full one. Idle time takes nothing.
    """

    def __init__(self, full: int, left: int | None = None) -> None:
        if full < 1:
            raise BatteryError("the table of levels does not say how much a full battery has")
        self.full = full
        self.left = full if left is None else min(left, full)

    def charge(self) -> int:
        return self.left * FULL // self.full

    def spend(self, energy: int) -> None:
        self.left = max(0, self.left - energy)
