"""Fusion: stores to the input buffer."""

from dataclasses import dataclass

from cores.config.core import Core
from cores.config.units.base import Unit

__all__ = ["UNIT", "FusionSettings"]


@dataclass(frozen=True, kw_only=True)
class FusionSettings(Core):

    #: 1: a STORE can write to the input buffer, so that a pointwise layer follows a depthwise one without memory.
    local_store: int = 0

    def check(self) -> None:
        super().check()
        self.require_switch("local_store")


UNIT = Unit(
    name="fusion",
    settings=FusionSettings,
    fields=("local_store",),
    always_written=True,
    needs=("depthwise",),
    switch=True,
    area={"store": lambda c: (c.local_store * c.ic_lanes,)},
)
