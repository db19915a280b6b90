"""Winograd F(2x2,3x3): loads transform boxes to tiles, stores sums of words back."""

from dataclasses import dataclass

from cores.config.units.base import Unit
from cores.config.units.binary import BinarySettings

__all__ = ["UNIT", "WinogradSettings"]


@dataclass(frozen=True, kw_only=True)
class WinogradSettings(BinarySettings):

    #: Winograd F(2x2,3x3): 0 without, 1 narrow (transformed values of 8 bits), 2 exact (all activations have 10 bits in
    #: the machine, all weights 12).
    winograd: int = 0

    @property
    def activation_bits(self) -> int:
        return 10 if self.winograd == 2 else super().activation_bits

    @property
    def weight_bits(self) -> int:
        return 12 if self.winograd == 2 else super().weight_bits

    def check(self) -> None:
        super().check()
        self.require("winograd", self.winograd in (0, 1, 2), "be 0, 1 or 2")
        if self.winograd == 2:
            self.require("multiplier_width", self.pixel_lanes == 1 or self.multiplier_width == 18,
                         "be 18 with winograd=2 and two pixel_lanes: products of 22 bits do not share a multiplier")
            self.require("binary_rows", self.binary_rows == 0, "be 0 with winograd=2")


UNIT = Unit(
    name="winograd",
    settings=WinogradSettings,
    fields=("winograd",),
    always_written=True,
    area={"load": lambda c: (c.winograd * c.ic_lanes,)},
)
