"""Row operations: Softmax and normalisations over the channels of a pixel."""

from dataclasses import dataclass

from cores.config.core import Core
from cores.config.units.base import Unit

__all__ = ["UNIT", "RowsSettings"]


@dataclass(frozen=True, kw_only=True)
class RowsSettings(Core):

    #: Pixels of which the row unit keeps a maximum, a sum and a factor: those of a tile; 0: no unit.
    rows: int = 0

    def check(self) -> None:
        super().check()
        self.require("rows", self.rows in (0, 16, 32, 64, 128, 256, 512), "be 0 or a power of two from 16 to 512")


UNIT = Unit(
    name="rows",
    settings=RowsSettings,
    fields=("rows",),
    standard=lambda c: {"rows": 64},
    area={"compute": lambda c: ((c.rows > 0) * c.ic_lanes, c.rows > 0)},
    imports=True,
)
