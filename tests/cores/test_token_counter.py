"""Token counter against an integer."""

import random

import pytest

from cores.control.token_counter import TokenCounter
from tests.cores.simulation import log_seed, simulate


@pytest.mark.parametrize("width", [1, 3, 8, 16])
def test_counts_posts_and_takes_of_the_same_cycle(width):
    log_seed()
    counter, most, overflows = TokenCounter(width=width), (1 << width) - 1, 0

    async def bench(ctx):
        nonlocal overflows
        level = 0
        for step in range(4000):
            greedy = step // 500 % 2            # runs of filling and of emptying
            post = random.random() < (0.4 if greedy else 0.98)
            take = random.randint(0, min(level, 3, 255)) if greedy and random.random() < 0.5 else 0
            ctx.set(counter.post, post)
            ctx.set(counter.take, take)
            lost = post and level == most and take == 0
            assert ctx.get(counter.overflow) == lost
            overflows += lost
            await ctx.tick()
            level = (level + post - take) & most
            assert ctx.get(counter.level) == level

    simulate(counter, bench)
    assert overflows or width > 8


@pytest.mark.parametrize("width", [0, 17])
def test_refuses_widths(width):
    with pytest.raises(ValueError, match=rf"width must be in 1\.\.16, not {width}"):
        TokenCounter(width=width)
