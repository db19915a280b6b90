"""What the importer has to know of the machine: which optional units some operators need."""

from dataclasses import dataclass
from typing import Self

from cores.config import NpuConfig

__all__ = ["Machine"]


@dataclass(frozen=True)
class Machine:
    """``tables`` of functions, of one value each; ``products`` of two tensors."""

    tables: bool = False
    products: bool = False

    @classmethod
    def of(cls, config: NpuConfig) -> Self:
        return cls(tables=bool(config.table), products=bool(config.product))

    @property
    def lacks(self) -> tuple[str, ...]:
        """Features that would make it complete."""
        return tuple(name for name, has in (("table", self.tables), ("product", self.products)) if not has)

    @classmethod
    def complete(cls) -> Self:
        """One that lacks nothing."""
        return cls(tables=True, products=True)
