"""FIFOs in step with those of Amaranth's library, in every cycle."""

import random

import pytest
from amaranth.hdl import Module
from amaranth.lib import fifo as library
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cores.lib.fifo import BufferedFifo, Fifo, ShallowFifo, SingleFifo
from tests.cores.simulation import log_seed, simulate

_OUTPUTS = ("w_rdy", "r_rdy", "r_data", "level")
_OURS = {"ours": ("some",), "theirs": ()}   # and what the library's do not have


class Twins(wiring.Component):
    """The same written to and read from both."""

    def __init__(self, ours, theirs):
        self.both = {"ours": ours, "theirs": theirs}
        width = ours.width
        super().__init__({
            "w_en": In(1), "r_en": In(1), "w_data": In(width),
            **{f"{which}_{name}": Out(getattr(fifo, name).shape())
               for which, fifo in self.both.items() for name in (*_OUTPUTS, *_OURS[which])},
        })

    def elaborate(self, platform):
        m = Module()
        for which, fifo in self.both.items():
            m.submodules[which] = fifo
            m.d.comb += [getattr(fifo, name).eq(getattr(self, name)) for name in ("w_en", "r_en", "w_data")]
            m.d.comb += [getattr(self, f"{which}_{name}").eq(getattr(fifo, name))
                         for name in (*_OUTPUTS, *_OURS[which])]
        return m


@pytest.mark.parametrize("depth", [2, 4, 16])
@pytest.mark.parametrize("ours, theirs", [
    (Fifo, library.SyncFIFO), (BufferedFifo, library.SyncFIFOBuffered), (ShallowFifo, library.SyncFIFOBuffered)])
def test_as_the_library(ours, theirs, depth):
    compare(ours(width=8, depth=depth), theirs(width=8, depth=depth))


def test_a_single_entry_as_the_library():
    compare(SingleFifo(width=8), library.SyncFIFO(width=8, depth=1))


def compare(ours, theirs):
    log_seed()
    twins = Twins(ours, theirs)
    full = empty = 0

    async def bench(ctx):
        nonlocal full, empty
        for step in range(3000):
            filling = step // 200 % 3
            ctx.set(twins.w_en, random.random() < (0.9, 0.5, 0.2)[filling])
            ctx.set(twins.r_en, random.random() < (0.2, 0.5, 0.9)[filling])
            ctx.set(twins.w_data, random.getrandbits(8))
            for name in _OUTPUTS:
                if name != "r_data" or ctx.get(twins.ours_r_rdy):
                    assert ctx.get(getattr(twins, f"ours_{name}")) == ctx.get(getattr(twins, f"theirs_{name}")), name
            assert ctx.get(twins.ours_some) == (ctx.get(twins.theirs_level) > 0)
            full += not ctx.get(twins.ours_w_rdy)
            empty += not ctx.get(twins.ours_r_rdy)
            await ctx.tick()

    simulate(twins, bench)
    assert full and empty


@pytest.mark.parametrize("of", [Fifo, BufferedFifo, ShallowFifo])
@pytest.mark.parametrize("depth", [0, 1, 12])
def test_refuses_depths(of, depth):
    with pytest.raises(ValueError, match=f"depth must be a power of two above 1, not {depth}"):
        of(width=8, depth=depth)
