"""Phase counter against lists of steps: every phase with none, one and several; new lengths at every turn."""

from itertools import product

import pytest

from cores.load.phase_counter import PhaseCounter
from tests.cores.simulation import Bench


@pytest.mark.parametrize("idle", [0.0, 0.4])
def test_phase_counter(idle, rng):
    counter = PhaseCounter(before_bits=3, data_bits=4, length_bits=5)
    bench = Bench(counter, rng=rng)
    lengths = [phases for phases in product((0, 1, 2, 7), (0, 1, 2, 15), (0, 1, 2, 7)) if any(phases)]

    def lay_out(ctx, phases):
        before, data, behind = phases
        for port, length in ((counter.before, before), (counter.data, data), (counter.length, before + data + behind)):
            ctx.set(port, length)

    async def begin(ctx, phases):
        lay_out(ctx, phases)
        ctx.set(counter.step, 0)
        ctx.set(counter.begin, 1)
        await ctx.tick()
        ctx.set(counter.begin, 0)

    async def count(ctx, phases, following, *, steps=None):
        """Through ``phases``; ``following`` are taken with the last step. Breaks off after ``steps``."""
        before, data, behind = phases
        expected = [0] * before + [1] * data + [0] * behind
        for number, in_data in enumerate(expected[:steps]):
            last = number == len(expected) - 1
            while True:
                lay_out(ctx, rng.integers(0, 8, 3).tolist())        # not looked at
                ctx.set(counter.begin, 0)
                assert (ctx.get(counter.in_data), ctx.get(counter.last)) == (in_data, last), (phases, number)
                ctx.set(counter.step, 0)
                if not bench.pauses(idle):
                    break
                await ctx.tick()
            if last:
                lay_out(ctx, following)
                ctx.set(counter.begin, 1)
            ctx.set(counter.step, 1)
            await ctx.tick()
        ctx.set(counter.begin, 0)

    async def compare(ctx):
        order = [lengths[number] for number in rng.permutation(len(lengths))]
        for phases in order[:5]:        # broken off, by a beginning or a reset
            await begin(ctx, phases)
            await count(ctx, phases, phases, steps=int(rng.integers(1, 4)))
            if rng.random() < 0.5:
                await bench.reset(ctx)
        await begin(ctx, order[0])
        for phases, following in zip(order, [*order[1:], order[0]], strict=True):
            await count(ctx, phases, following)

    bench.run(compare)
