"""Token merge: as many tokens as were posted, none more than a cycle late for want of the line."""

import random

from cores.control.token_merge import TokenMerge
from tests.cores.simulation import log_seed, simulate


def test_token_merge():
    log_seed()
    merge = TokenMerge()

    async def bench(ctx):
        owed = 0
        for _ in range(500):
            first = random.randrange(2)
            second = 0 if owed and first else random.randrange(2)
            ctx.set(merge.first, first)
            ctx.set(merge.second, second)
            assert ctx.get(merge.owed) == owed
            assert ctx.get(merge.post) == (first + second + owed > 0)
            owed = max(first + second + owed - 1, 0)
            await ctx.tick()

    simulate(merge, bench)
