"""Corner turn: loads of stored activations become weights of dense steps."""

from dataclasses import dataclass

from cores.config.units.base import Unit
from cores.config.units.winograd import WinogradSettings

__all__ = ["UNIT", "TurnSettings"]


@dataclass(frozen=True, kw_only=True)
class TurnSettings(WinogradSettings):

    #: 1: loads turn a stored feature map into weights, for products of two activations.
    turn: int = 0

    def check(self) -> None:
        super().check()
        self.require_switch("turn")
        self.require("turn", not self.turn or self.winograd != 2, "be 0 with winograd=2, whose weights have 12 bits")


UNIT = Unit(
    name="turn",
    settings=TurnSettings,
    fields=("turn",),
    switch=True,
    area={"load": lambda c: (c.turn * c.ic_lanes,)},
    imports=True,
)
