"""Limits: no burst leaves the memory that the host has set and locked."""

from dataclasses import dataclass

from cores.config.core import Core
from cores.config.units.base import Unit

__all__ = ["UNIT", "LimitsSettings"]


@dataclass(frozen=True, kw_only=True)
class LimitsSettings(Core):

    #: 1: the address of each burst is compared with limits that the host sets and locks; one outside does not go out.
    limits: int = 0

    def check(self) -> None:
        super().check()
        self.require_switch("limits")


#: Each of these has registers or comparisons of addresses.
_PARTS = ("read", "write", "registers", "limit_report")

UNIT = Unit(
    name="limits",
    settings=LimitsSettings,
    fields=("limits",),
    switch=True,
    area=dict.fromkeys(_PARTS, lambda c: (c.limits * c.address_width,)),
    computes=False,
)
