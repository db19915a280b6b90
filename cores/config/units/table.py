"""Functions of a value, by a table of 256 bytes."""

from dataclasses import dataclass

from cores.config.core import Core
from cores.config.units.base import Unit

__all__ = ["UNIT", "TableSettings"]


@dataclass(frozen=True, kw_only=True)
class TableSettings(Core):

    #: 1: a STORE can look its results up in a table of 256 bytes: any function of a value.
    table: int = 0

    def check(self) -> None:
        super().check()
        self.require_switch("table")


UNIT = Unit(
    name="table",
    settings=TableSettings,
    fields=("table",),
    switch=True,
    area={"store": lambda c: (c.table * c.ic_lanes,)},
    imports=True,
)
