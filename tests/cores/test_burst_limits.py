"""Burst limits beside the splitter whose bursts they compare: a burst is inside if its bytes are, else it is not."""

import random

import pytest
from amaranth.hdl import Module

from cores.bus.burst_splitter import BurstSplitter
from cores.bus.limits.burst_limits import BurstLimits
from cores.config import NpuConfig
from cores.lib.component import Component
from tests.cores.simulation import log_seed, simulate
from tests.cores.test_burst_splitter import bursts_of

PAGE = 4096


class Compared(Component):
    """A splitter with limits, as in the engines."""

    def __init__(self, config: NpuConfig):
        self.splitter = BurstSplitter(
            address_width=config.address_width, beat_bytes=config.beat_bytes, length_width=12, tag_width=1,
            burst_beats=min(256, PAGE // config.beat_bytes))
        self.limits = BurstLimits(config, burst_bytes=self.splitter.burst_beats * config.beat_bytes)
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.splitter, m.submodules.limits = splitter, limits = self.splitter, self.limits
        m.d.comb += [
            limits.run.eq(splitter.run.p.address),
            limits.take.eq(splitter.run.ready),
            limits.burst.eq(splitter.burst.p.address),
            limits.next.eq(splitter.burst.valid & splitter.burst.ready),
        ]
        return m


@pytest.mark.parametrize("lanes, width", [(8, 32), (16, 40), (32, 36)])
def test_compares_every_burst(lanes, width):
    log_seed()
    config = NpuConfig(oc_lanes=32, ic_lanes=lanes, address_width=width)
    part, top = Compared(config), 1 << width
    cases = []
    for _ in range(150):
        first = random.choice([0, 1, (top // PAGE) - 3, random.randrange(top // PAGE)])
        last = min(top // PAGE - 1, first + random.choice([0, 1, 3, 1000])) if random.random() < 0.9 else first - 1
        address = random.choice([first, last, last + 1]) * PAGE + lanes * random.randint(-300, 300)
        beats = random.choice([1, 2, random.randint(1, 1200)])
        address = max(0, min(address, top - beats * lanes))
        cases.append((first, max(last, 0), random.random() < 0.9, address, beats))

    async def bench(ctx):
        splitter, limits = part.splitter, part.limits
        for first, last, locked, address, beats in cases:
            ctx.set(limits.limits, {"first": first, "last": last, "locked": locked})
            ctx.set(splitter.run.p, {"address": address, "length": beats - 1, "tag": 0})
            ctx.set(splitter.run.valid, 1)
            ctx.set(splitter.burst.ready, 0)
            await ctx.tick()
            ctx.set(splitter.run.valid, 0)
            for begin, length, _, _ in bursts_of(address, beats, 0, beat_bytes=lanes, burst_beats=splitter.burst_beats):
                for _ in range(random.randrange(3)):
                    await ctx.tick()
                inside = locked and first * PAGE <= begin and begin + (length + 1) * lanes <= (last + 1) * PAGE
                assert ctx.get(splitter.burst.valid) and ctx.get(splitter.burst.p.address) == begin
                assert ctx.get(limits.inside) == inside, (first, last, locked, hex(begin))
                if not inside:
                    break       # the machine stops here
                ctx.set(splitter.burst.ready, 1)
                await ctx.tick()
                ctx.set(splitter.burst.ready, 0)
            while ctx.get(splitter.burst.valid):        # as a reset would
                ctx.set(splitter.burst.ready, 1)
                await ctx.tick()

    simulate(part, bench)


@pytest.mark.parametrize("burst_bytes", [0, 3, 8192])
def test_refuses_other_bursts(burst_bytes):
    with pytest.raises(ValueError, match=f"burst_bytes must divide 4096, not {burst_bytes}"):
        BurstLimits(NpuConfig(), burst_bytes=burst_bytes)
