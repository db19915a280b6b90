"""Place thresholds: the number of the ones, or zeros, that an activation had so far."""

import numpy as np

from cores.arch.stochastic import Sequence
from cores.compute.stochastic.place_thresholds import PlaceThresholds
from tests.cores.simulation import log_seed, simulate
from tests.cores.stochastic_values import random_streams


def test_thresholds():
    rng = np.random.default_rng(log_seed())
    places = PlaceThresholds()

    async def bench(ctx):
        for _ in range(12):
            streams = random_streams(rng, most=256)
            thresholds = streams.thresholds(Sequence.ACTIVATIONS, bipolar=True)
            bits = rng.random(streams.made) < rng.choice([0, 0.2, 0.9, 1])
            seen = [0, 0]
            for number, bit in enumerate(bits.tolist()):
                ctx.set(places.bit, bit)
                ctx.set(places.valid, 1)
                ctx.set(places.first, number == 0)
                ctx.set(places.mask, max(0, 256 // streams.length // 2 - 1))
                await ctx.tick()
                assert ctx.get(places.threshold) == thresholds[seen[bit]]
                assert ctx.get(places.activation) == bit
                seen[bit] += 1
            ctx.set(places.valid, 0)
            for _ in range(int(rng.integers(3))):
                ctx.set(places.bit, int(rng.integers(2)))
                await ctx.tick()

    simulate(places, bench)
