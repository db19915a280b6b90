"""How fast the machine's clock is, and how that is known."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Basis", "Clock"]

#: ``target``: what the board's file aims at. ``given``: on the command line. ``estimated``: from the mapped netlist
#: (docs/timing.md). ``placed and routed``: by the device's tool.
Basis = Literal["target", "given", "estimated", "placed and routed"]


@dataclass(frozen=True)
class Clock:
    """``mhz`` by its ``basis``. As text ``178 MHz, estimated``: no rate is shown without saying how it is known."""

    mhz: float
    basis: Basis

    def __str__(self) -> str:
        return f"{self.mhz:g} MHz, {self.basis}"

    def per_second(self, cycles: float) -> float:
        """How many times in a second ``cycles`` pass: inferences a second, for the cycles of one."""
        return self.mhz * 1e6 / cycles
