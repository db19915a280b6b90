"""What the importer has to know of the machine: which optional units some operators need."""

from dataclasses import dataclass
from typing import Self

from cores.config import UNITS, NpuConfig

__all__ = ["Machine", "Units"]

#: Units that make other layers of a model.
_ASKED = tuple(unit for unit in UNITS if unit.imports)


def _require_asked(name: str) -> None:
    if name not in [unit.name for unit in _ASKED]:
        raise ValueError(f"{name!r} is no unit that says `imports` of itself in cores/config/units")


@dataclass(frozen=True)
class Machine:
    """``features``: names of the optional units that it has, of those that make a difference to the importer."""

    features: frozenset[str] = frozenset()

    @classmethod
    def having(cls, *names: str) -> Self:
        """Raises ValueError for a unit that makes no difference to the importer."""
        for name in names:
            _require_asked(name)
        return cls(frozenset(names))

    @classmethod
    def of(cls, config: NpuConfig) -> Self:
        return cls.having(*(unit.name for unit in _ASKED if unit.is_in(config)))

    @classmethod
    def complete(cls) -> Self:
        """One that lacks nothing."""
        return cls.having(*(unit.name for unit in _ASKED))

    def has(self, name: str) -> bool:
        _require_asked(name)
        return name in self.features

    @property
    def lacks(self) -> tuple[str, ...]:
        """Features that would make it complete."""
        return tuple(unit.name for unit in _ASKED if not self.has(unit.name))

    def with_units(self, *names: str) -> Self:
        return self.having(*self.features, *names)


class Units:
    """The optional units of a ``machine`` for one import. ``missed``: what it would use and is not there; no
    other unit would make a difference to it.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.missed: set[str] = set()

    def have(self, feature: str) -> bool:
        """To be asked only where the unit would be used."""
        if self.machine.has(feature):
            return True
        self.missed.add(feature)
        return False
