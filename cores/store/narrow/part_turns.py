"""When parts of pixels set out."""

from typing import Any

from amaranth.hdl import Const, Value

from ..turns import Turns

__all__ = ["PartTurns"]


class PartTurns(Turns):
    """Each part sets out as a pixel does elsewhere, and takes its channels' parameters. Those with a second stage are
    as far apart as pixels. Another operand's beat comes with a pixel's first part.
    """

    def wants(self, position: Any) -> Value:
        return self.residual & ~position.part.any()

    def loads(self, stage: Any, block_start: Value, block_end: Value) -> tuple[Value, Value]:
        return Const(1), block_end
