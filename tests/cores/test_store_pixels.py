"""Store pixels against the simulator's places of output pixels, and sums of Winograd's words."""

import pytest
from amaranth.hdl import Value

from cores.arch.instruction import Instruction, encode
from cores.arch.isa import Opcode, WordForm
from cores.config import NpuConfig
from cores.store.store_pixels import StorePixels
from sim.golden import winograd_output
from tests.cores.simulation import Bench
from tests.cores.store_places import random_maxima, random_order, row_words, store_places

CONFIGS = {
    "one_place": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, acc_depth=64),
    "four_places": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=1, acc_depth=64),
    "spread": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, acc_depth=64),
    "winograd": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=1, winograd=1, acc_depth=512),
    "maximum": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, winograd=1, acc_depth=512, maximum=1),
    "maximum_one_pixel": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, acc_depth=64, maximum=1),
    "winograd_one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, winograd=1, acc_depth=512),
}


@pytest.mark.slow
@pytest.mark.parametrize("idle", [0.0, 0.4])
@pytest.mark.parametrize("name", CONFIGS)
def test_store_pixels(name, idle, rng):
    """Pixels in the order of the write engine's beats, a position a cycle, or of maxima; resets in between."""
    config = CONFIGS[name]
    pixels = StorePixels(config)
    position = pixels.position
    bench = Bench(pixels)
    bench.rng = rng

    async def step(ctx):
        """The present position, which is taken at the end of this cycle, after a pause."""
        while bench.pauses(idle) or not ctx.get(position.valid):
            ctx.set(position.ready, 0)
            await ctx.tick()
        ctx.set(position.ready, 1)
        return ctx.get(position.payload)

    async def pixel_of_tile(ctx, geometry, word, place):
        """Nine steps: the words whose sum is the pixel at ``place`` (row, column) of a tile."""
        sums = rng.integers(-1 << 20, 1 << 20, (4, 4))
        total, seen = 0, set()
        for term in range(9):
            at = await step(ctx)
            assert (at.first, at.last) == (term == 0, term == 8)
            index, rest = divmod(at.address - word, geometry["position_words"])
            assert rest == 0 and index not in seen
            seen.add(index)
            before = 0 if term == 0 else total
            total = int(sums.flat[index]) + (-before if at.negate else before)
            if term < 8:
                await ctx.tick()
        assert total == winograd_output(sums)[place]

    async def store(ctx, geometry, store, *, maximum=False, broken_off=None):
        ctx.set(position.ready, 0)
        if config.maximum:
            ctx.set(pixels.maximum, maximum)
            ctx.set(pixels.row_words, row_words(config, geometry) if maximum else int(rng.integers(1 << 12)))
        ctx.set(Value.cast(pixels.geometry), int.from_bytes(encode(geometry), "little"))
        await ctx.tick()
        ctx.set(Value.cast(pixels.store), int.from_bytes(encode(store), "little"))
        ctx.set(pixels.restart, 1)
        await ctx.tick()
        ctx.set(pixels.restart, 0)
        for _ in range(StorePixels.latency(config) - 1):
            assert not ctx.get(position.valid)
            await ctx.tick()
        words, selects = store_places(config, geometry, store, maximum=maximum)
        rows, cols, count = geometry["rows"], geometry["cols"], len(words)
        for number, (word, select) in enumerate(zip(words.tolist(), selects.tolist(), strict=True)):
            if number == broken_off:
                return
            assert ctx.get(position.valid), "a position a cycle, however the last one was taken"
            at = await step(ctx)
            pixel = number % (rows * cols)
            if geometry["words"] == WordForm.TILES:
                column, turn = divmod(pixel % cols, 1 + store["repeats"])
                await pixel_of_tile(ctx, geometry, word, (turn if maximum else pixel // cols % 2, column % 2))
                at = ctx.get(position.payload)
            else:
                assert at.address == word, number
                if config.winograd:
                    assert at.first and at.last
            assert at.select == select, number
            leaves = pixel % cols % (1 + store["repeats"]) == store["repeats"] or pixel % cols == cols - 1
            flags = {"leaves": leaves, "row_end": pixel % cols == cols - 1, "block_start": pixel == 0,
                     "block_end": pixel == rows * cols - 1, "end": number == count - 1}
            assert {flag: at[flag] for flag in flags} == flags, number
            await ctx.tick()
        for _ in range(5):
            assert not ctx.get(position.valid) and not ctx.get(pixels.beyond)
            await ctx.tick()

    async def compare(ctx):
        for number in range(30):
            broken_off = int(rng.integers(20)) if number % 7 == 3 else None
            maximum = bool(config.maximum and rng.integers(2))
            order = random_maxima(config, rng) if maximum else random_order(config, rng)
            await store(ctx, *order, maximum=maximum, broken_off=broken_off)
            if broken_off is not None:
                await bench.reset(ctx)

    bench.run(compare)


@pytest.mark.parametrize("name", ["four_places", "winograd"])
@pytest.mark.parametrize("pooled", [0, 1])
def test_words_beyond_the_bank(name, pooled, rng):
    """The last word of a bank is there, the next is not offered, nor what follows; a pooled STORE has no words."""
    config = CONFIGS[name]
    pixels = StorePixels(config)
    bench = Bench(pixels, rng=rng, stall=0.3)
    geometry = Instruction(Opcode.STORE_SET, rows=config.acc_depth + 1, cols=2)
    store = Instruction(Opcode.STORE, blocks=1, pooled=pooled)

    async def compare(ctx):
        ctx.set(Value.cast(pixels.geometry), int.from_bytes(encode(geometry), "little"))
        await ctx.tick()
        ctx.set(Value.cast(pixels.store), int.from_bytes(encode(store), "little"))
        ctx.set(pixels.restart, 1)
        await ctx.tick()
        ctx.set(pixels.restart, 0)
        taken, there = bench.taken["position"], 2 * (config.acc_depth + pooled)
        await bench.until(ctx, lambda: len(taken) == there)
        await bench.cycles(ctx, 20)
        assert len(taken) == there and not ctx.get(pixels.position.valid)
        assert ctx.get(pixels.beyond) == (not pooled)
        await bench.reset(ctx)
        assert not ctx.get(pixels.beyond)

    bench.run(compare)


@pytest.mark.parametrize("apart, there", [(60, True), (62, False), (4000, False)])
def test_a_lower_row_beyond_the_bank(apart, there, rng):
    """Of maxima, whose lower row has its last word in the bank, or not."""
    config = CONFIGS["maximum_one_pixel"]
    pixels = StorePixels(config)
    bench = Bench(pixels, rng=rng, stall=0.3)
    geometry = Instruction(Opcode.STORE_SET, rows=1, cols=8)

    async def compare(ctx):
        ctx.set(pixels.maximum, 1)
        ctx.set(pixels.row_words, apart)
        ctx.set(Value.cast(pixels.geometry), int.from_bytes(encode(geometry), "little"))
        await ctx.tick()
        store = Instruction(Opcode.STORE, blocks=1, repeats=1)
        ctx.set(Value.cast(pixels.store), int.from_bytes(encode(store), "little"))
        ctx.set(pixels.restart, 1)
        await ctx.tick()
        ctx.set(pixels.restart, 0)
        await bench.cycles(ctx, 60)
        addresses = [at.address for at in bench.taken["position"]]
        wanted = [word for col in range(4) for word in (col, col + apart)]
        assert addresses == wanted[:next((n for n, word in enumerate(wanted) if word >= config.acc_depth), len(wanted))]
        assert ctx.get(pixels.beyond) == (not there)

    bench.run(compare)
