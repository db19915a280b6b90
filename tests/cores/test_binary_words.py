"""Binary words: counts of equal bits from any bank, rows to their group of lanes, parities as the rows come."""

from itertools import product

import numpy as np
import pytest

from cores.compute.binary.binary_words import BinaryWords
from cores.config import NpuConfig
from sim.golden import binary_sums
from tests.cores.simulation import Bench
from tests.selection import with_full

SIZES = {"ic_lanes": 8, "nnz_lanes": 4, "input_depth": 512, "acc_depth": 64, "gather": 1}
CONFIGS = {
    "four_banks": NpuConfig(oc_lanes=16, depthwise=1, binary_rows=4, **SIZES),
    "one_pixel": NpuConfig(oc_lanes=8, pixel_lanes=1, binary_rows=8, **SIZES),
}


def number(bits: np.ndarray) -> int:
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


@pytest.mark.slow
@pytest.mark.parametrize("name, later", with_full(
    list(product(CONFIGS, [0, 2])), ("four_banks", 2), ("one_pixel", 0)))
def test_sums(name, later, rng):
    config = CONFIGS[name]
    latency = BinaryWords.shortest_latency(config) + later
    words = BinaryWords(config, latency=latency)
    px, tm, rows, banks, bits = (config.pixel_lanes, config.oc_lanes, config.binary_rows, config.banks,
                                 config.binary_bits)
    bench = Bench(words, rng=rng)

    async def compare(ctx):
        for _ in range(6):
            pixels, weights = (rng.integers(0, 2, (count, bits), np.uint8) for count in (banks, rows))
            zeros = rng.integers(0, 2, (banks, 2), np.uint8)
            first, group = int(rng.integers(banks)), int(rng.integers(config.binary_groups))
            held = [0] * rows
            for row in weights:
                held = [*held[1:], number(row)]
                for place, value in enumerate(held):
                    ctx.set(words.rows[place], value)
                ctx.set(words.row_taken, 1)
                await bench.cycles(ctx, 1)
            ctx.set(words.row_taken, 0)
            word = {"binary": 1, "step_start": 1, "turn": first}
            ctx.set(words.following, word)
            assert ctx.get(words.release)
            await bench.cycles(ctx, 1)
            ctx.set(words.following, {})
            ctx.set(words.word, word)
            for bank in range(banks):
                ctx.set(words.pixels[bank], number(pixels[bank]))
                ctx.set(words.zeros[bank], number(zeros[bank]))
            await bench.cycles(ctx, 1)
            ctx.set(words.word, {})
            await bench.cycles(ctx, latency - 2)
            ctx.set(words.finishing, {"binary_take": 1 << group, "turn": first})
            await bench.cycles(ctx, 1)
            ctx.set(words.finishing, {})
            order = [(first + pixel) % banks for pixel in range(px)]
            expected = np.zeros((px, tm), np.int64)
            expected[:, group * rows:(group + 1) * rows] = binary_sums(pixels[order], weights, zeros[order])
            np.testing.assert_array_equal([ctx.get(total) for total in words.sums], expected.ravel())
            await bench.cycles(ctx, 1)
            assert not any(ctx.get(total) for total in words.sums)
            await bench.reset(ctx)

    bench.run(compare)


def test_latency_is_long_enough():
    with pytest.raises(ValueError, match="latency must be at least"):
        BinaryWords(CONFIGS["one_pixel"], latency=1)
