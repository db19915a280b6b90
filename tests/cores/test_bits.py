"""Differences whose upper bits do not wait, against numbers."""

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cores.lib.bits import difference
from tests.cores.simulation import simulate

BITS = 5


class Difference(wiring.Component):
    a: In(BITS)
    b: In(BITS)
    found: Out(BITS)

    def __init__(self, above: int):
        self.above = above
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        ahead = Signal()
        m.d.sync += ahead.eq(~ahead)        # a clock, as the simulator wants one
        m.d.comb += self.found.eq(difference(self.a, self.b, above=self.above))
        return m


@pytest.mark.parametrize("above", range(1, BITS))
def test_difference(above: int):
    component = Difference(above)

    async def compare(ctx):
        for a in range(1 << BITS):
            for b in range(1 << BITS):
                ctx.set(component.a, a)
                ctx.set(component.b, b)
                assert ctx.get(component.found) == (a - b) % (1 << BITS), (a, b)

    simulate(component, compare)
