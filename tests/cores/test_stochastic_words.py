"""Stochastic words: pixels from any bank, rows to their group of lanes, at the latency that is asked for."""

import numpy as np
import pytest

from cores.arch.stochastic import Circuit
from cores.compute.stochastic.stochastic_words import StochasticWords
from cores.config import NpuConfig
from sim.stochastic.fast import accumulate
from sim.stochastic.streams import Streams
from tests.cores.simulation import Bench
from tests.cores.stochastic_values import random_values

SIZES = {"ic_lanes": 8, "nnz_lanes": 4, "input_depth": 512, "acc_depth": 64}
CONFIGS = {
    "four_banks": NpuConfig(oc_lanes=16, depthwise=1, stochastic_rows=4, stochastic_circuit=Circuit.AND_LOOP,
                            stochastic_bits=2, **SIZES),
    "one_pixel": NpuConfig(oc_lanes=8, pixel_lanes=1, stochastic_rows=8, stochastic_circuit=Circuit.UGEMM,
                           stochastic_bits=1, **SIZES),
}


@pytest.mark.slow
@pytest.mark.parametrize("later", [0, 2])
@pytest.mark.parametrize("name", CONFIGS)
def test_sums(name, later, rng):
    config = CONFIGS[name]
    latency = StochasticWords.shortest_latency(config) + later
    words, bench = StochasticWords(config, latency=latency), None
    px, tm, tn, rows, banks = (config.pixel_lanes, config.oc_lanes, config.ic_lanes, config.stochastic_rows,
                               config.banks)
    bench = Bench(words, rng=rng)

    def beat(values: np.ndarray) -> int:
        return int.from_bytes(values.astype(np.int8).tobytes(), "little")

    async def compare(ctx):
        for _ in range(6):
            streams = Streams(16, int(rng.choice([8, 16])))
            pixels, weights = random_values(rng, (banks, tn)), random_values(rng, (rows, tn))
            first, group = int(rng.integers(banks)), int(rng.integers(config.stochastic_groups))
            start = {"stochastic": 1, "word_start": 1, "step_start": 1, "length": 4,
                     "made": streams.made.bit_length() - 1, "turn": first}
            ctx.set(words.following, start)
            await bench.cycles(ctx, 1)
            ctx.set(words.following, {})
            ctx.set(words.word, start)
            for bank, values in enumerate(pixels):
                ctx.set(words.pixels[bank], beat(values))
            for row, values in enumerate(weights):
                ctx.set(words.rows[row], beat(values))
            await bench.cycles(ctx, 1)
            ctx.set(words.word, {})
            for bank in range(banks):
                ctx.set(words.pixels[bank], beat(random_values(rng, (tn,))))
            await bench.cycles(ctx, StochasticWords.rows_copied(config))
            for row in range(rows):
                ctx.set(words.rows[row], beat(random_values(rng, (tn,))))
            last = streams.made // config.stochastic_bits - 1       # cycles from the word's first to its last
            await bench.cycles(ctx, last + latency - 2 - StochasticWords.rows_copied(config))
            ctx.set(words.finishing, {"stochastic_take": 1 << group})
            await bench.cycles(ctx, 1)
            ctx.set(words.finishing, {})
            order = [(first + pixel) % banks for pixel in range(px)]
            sums = accumulate(config.circuit, pixels[order], weights, streams, fan_in=tn)
            expected = np.zeros((px, tm), np.int64)
            expected[:, group * rows:(group + 1) * rows] = sums
            np.testing.assert_array_equal([ctx.get(total) for total in words.sums], expected.ravel())
            await bench.cycles(ctx, 1)
            assert not any(ctx.get(total) for total in words.sums)
            await bench.reset(ctx)

    bench.run(compare)


def test_latency_is_long_enough():
    with pytest.raises(ValueError, match="latency must be at least"):
        StochasticWords(CONFIGS["one_pixel"], latency=2)
