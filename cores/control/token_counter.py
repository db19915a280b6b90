"""Counts the tokens that one queue has given to another."""

from amaranth.hdl import Module
from amaranth.lib.wiring import In, Out

from ..lib.component import Component
from ..timing.control import TokenCounterTiming
from .engine_port import TAKE_BITS

__all__ = ["TokenCounter"]


class TokenCounter(TokenCounterTiming, Component):
    """The tokens of one giver and one taker; one may come and some go in the same cycle.

    A post that finds the counter full is reported, which stops the machine; what the counter says from then on means
    nothing.

    Raises ValueError unless ``width`` is in 1..16.
    """

    def __init__(self, *, width: int = 8):
        if not 1 <= width <= 16:
            raise ValueError(f"width must be in 1..16, not {width!r}")
        super().__init__({
            "post": In(1),        # add one
            "take": In(TAKE_BITS),        # remove so many, no more than ``level``
            "level": Out(width),  # tokens that are there
            "overflow": Out(1),   # the post finds the counter full
        })

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.overflow.eq(self.post & self.level.all() & (self.take == 0))
        m.d.sync += self.level.eq(self.level - self.take + self.post)
        return m
