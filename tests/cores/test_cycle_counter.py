"""The one counter of a machine that has no others, against a sum in Python."""

import random

from cores.control.cycle_counter import CycleCounter
from tests.cores.simulation import log_seed, simulate


def test_it_counts_between_clears():
    log_seed()
    counter = CycleCounter()

    async def bench(ctx):
        count = 0
        for step in range(400):
            event, clear = random.random() < 0.7, step in (100, 101) or random.random() < 0.01
            ctx.set(counter.events, event)
            ctx.set(counter.clear, clear)
            assert ctx.get(counter.valid) and ctx.get(counter.value) == count, step
            await ctx.tick()
            count = 0 if clear else count + event

    simulate(counter, bench)
