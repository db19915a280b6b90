"""Store pixels against the simulator's places of output pixels, and sums of Winograd's words."""

import pytest
from amaranth.hdl import Value

from cores.arch.isa import Instruction, Opcode, encode
from cores.config import NpuConfig
from cores.store.store_pixels import StorePixels
from sim.golden import winograd_output
from tests.cores.simulation import Bench
from tests.cores.store_places import random_order, store_places

CONFIGS = {
    "one_place": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, acc_depth=64),
    "four_places": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=1, acc_depth=64),
    "spread": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, acc_depth=64),
    "winograd": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=1, winograd=1, acc_depth=512),
    "winograd_one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, winograd=1, acc_depth=512),
}


@pytest.mark.parametrize("idle", [0.0, 0.4])
@pytest.mark.parametrize("name", CONFIGS)
def test_store_pixels(name, idle, rng):
    """Pixels in the order of the write engine's beats, a step a cycle; resets in between."""
    config = CONFIGS[name]
    pixels = StorePixels(config)
    bench = Bench(pixels, rng=rng, idle=idle)

    async def step(ctx):
        """The present step, after a pause."""
        while bench.pauses(idle):
            ctx.set(pixels.step, 0)
            await ctx.tick()
        ctx.set(pixels.step, 1)

    async def pixel_of_tile(ctx, geometry, word, place):
        """Nine steps: the words whose sum is the pixel at ``place`` (row, column) of a tile."""
        sums = rng.integers(-1 << 20, 1 << 20, (4, 4))
        total, seen = 0, set()
        for term in range(9):
            await step(ctx)
            assert (ctx.get(pixels.first), ctx.get(pixels.last)) == (term == 0, term == 8)
            position, rest = divmod(ctx.get(pixels.address) - word, geometry["position_words"])
            assert rest == 0 and position not in seen
            seen.add(position)
            before = 0 if term == 0 else total
            total = int(sums.flat[position]) + (-before if ctx.get(pixels.negate) else before)
            if term < 8:
                await ctx.tick()
        assert total == winograd_output(sums)[place]

    async def store(ctx, geometry, store, *, broken_off=None):
        for port, value in ((pixels.geometry, geometry), (pixels.store, store)):
            ctx.set(Value.cast(port), int.from_bytes(encode(value), "little"))
        ctx.set(pixels.restart, 1)
        ctx.set(pixels.step, 0)
        await ctx.tick()
        ctx.set(pixels.restart, 0)
        words, selects = store_places(config, geometry, store)
        rows, cols, count = geometry["rows"], geometry["cols"], len(words)
        for number, (word, select) in enumerate(zip(words.tolist(), selects.tolist(), strict=True)):
            if number == broken_off:
                break
            await step(ctx)
            pixel = number % (rows * cols)
            if geometry["winograd"]:
                column = pixel % cols // (1 + store["repeats"])
                await pixel_of_tile(ctx, geometry, word, (pixel // cols % 2, column % 2))
            else:
                assert ctx.get(pixels.beyond) == (word >= config.acc_depth)
                assert ctx.get(pixels.address) == word % config.acc_depth, number
                if config.winograd:
                    assert ctx.get(pixels.first) and ctx.get(pixels.last)
            assert ctx.get(pixels.select) == select, number
            leaves = pixel % cols % (1 + store["repeats"]) == store["repeats"] or pixel % cols == cols - 1
            flags = {"leaves": leaves, "row_end": pixel % cols == cols - 1, "block_start": pixel == 0,
                     "block_end": pixel == rows * cols - 1, "end": number == count - 1}
            assert {flag: ctx.get(getattr(pixels, flag)) for flag in flags} == flags, number
            await ctx.tick()
        ctx.set(pixels.step, 0)

    async def compare(ctx):
        for number in range(30):
            broken_off = int(rng.integers(20)) if number % 7 == 3 else None
            await store(ctx, *random_order(config, rng), broken_off=broken_off)
            if broken_off is not None:
                await bench.reset(ctx)

    bench.run(compare)


def test_words_beyond_the_bank(rng):
    """The last word of a bank is there, the next is not."""
    config = CONFIGS["four_places"]
    pixels = StorePixels(config)
    bench = Bench(pixels)
    geometry = Instruction(Opcode.STORE_SET, rows=config.acc_depth + 1, cols=2)

    async def compare(ctx):
        ctx.set(Value.cast(pixels.geometry), int.from_bytes(encode(geometry), "little"))
        ctx.set(Value.cast(pixels.store), int.from_bytes(encode(Instruction(Opcode.STORE, blocks=1)), "little"))
        ctx.set(pixels.restart, 1)
        await ctx.tick()
        ctx.set(pixels.restart, 0)
        ctx.set(pixels.step, 1)
        for pixel in range(2 * geometry["rows"]):
            assert ctx.get(pixels.beyond) == (pixel >= 2 * config.acc_depth)
            await ctx.tick()

    bench.run(compare)
