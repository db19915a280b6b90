"""Counts the tokens that one queue has given to another."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["TokenCounter"]


class TokenCounter(wiring.Component):
    """``level`` tokens are there; ``post`` adds one and ``take`` removes that many, in the same cycle if need be.

    A taker takes no more than ``level``. A post that finds the counter full is lost and pulses ``overflow`` with it.

    Raises ValueError unless ``width`` is in 1..16.
    """

    def __init__(self, *, width: int = 8):
        if not 1 <= width <= 16:
            raise ValueError(f"width must be in 1..16, not {width!r}")
        super().__init__({
            "post": In(1),
            "take": In(8),
            "level": Out(width),
            "overflow": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.overflow.eq(self.post & self.level.all() & (self.take == 0))
        m.d.sync += self.level.eq(self.level - self.take + (self.post & ~self.overflow))
        return m
