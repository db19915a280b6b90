"""Token merge: two posters, one token line."""

from amaranth.hdl import Module
from amaranth.lib.wiring import In, Out

from ..lib.component import Component

__all__ = ["TokenMerge"]


class TokenMerge(Component):
    """Post a token for each of ``first`` and ``second``; one that finds the line taken is ``owed`` to a later cycle.

    No more than one is owed: both may post in one cycle only when none is.
    """

    def __init__(self):
        super().__init__({
            "first": In(1),   # a token of the one
            "second": In(1),  # a token of the other
            "post": Out(1),   # a token goes on
            "owed": Out(1),   # one has still to follow
        })

    def elaborate(self, platform):
        m = Module()
        either, both = self.first | self.second, self.first & self.second
        m.d.comb += self.post.eq(either | self.owed)
        m.d.sync += self.owed.eq(both | (self.owed & either))
        return m
