"""Products of two tensors."""

from dataclasses import dataclass

from cores.config.core import Core
from cores.config.units.base import Unit

__all__ = ["UNIT", "ProductSettings"]


@dataclass(frozen=True, kw_only=True)
class ProductSettings(Core):

    #: 1: a STORE can multiply its results by those of another tensor, or by a vector of one number a channel.
    product: int = 0

    def check(self) -> None:
        super().check()
        self.require_switch("product")


UNIT = Unit(
    name="product",
    settings=ProductSettings,
    fields=("product",),
    switch=True,
    area={"store": lambda c: (c.product * c.ic_lanes,)},
    imports=True,
)
