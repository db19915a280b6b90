"""What the importer has to know of the machine: which optional units some operators need."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from cores.config import NpuConfig

__all__ = ["Machine", "Units"]


@dataclass(frozen=True)
class Machine:
    """``tables`` of functions, of one value each; ``products`` of two tensors."""

    tables: bool = False
    products: bool = False

    #: Feature of the configuration -> field here.
    FIELDS: ClassVar[Mapping[str, str]] = {"table": "tables", "product": "products"}

    @classmethod
    def of(cls, config: NpuConfig) -> Self:
        return cls(tables=bool(config.table), products=bool(config.product))

    @property
    def lacks(self) -> tuple[str, ...]:
        """Features that would make it complete."""
        return tuple(name for name, field in self.FIELDS.items() if not getattr(self, field))

    @classmethod
    def complete(cls) -> Self:
        """One that lacks nothing."""
        return cls(tables=True, products=True)


class Units:
    """The optional units of a ``machine`` for one import. ``missed``: what it would use and is not there; no
    other unit would make a difference to it.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.missed: set[str] = set()

    def have(self, feature: str) -> bool:
        """To be asked only where the unit would be used."""
        if feature in self.machine.lacks:
            self.missed.add(feature)
        return feature not in self.missed
