"""Tile loader: boxes after a LOAD_WINOGRAD become the golden model's entries, others pass it by."""

import pytest
from amaranth.hdl import Value

from cores.arch.instruction import Instruction, encode
from cores.arch.isa import Opcode
from cores.config import NpuConfig
from cores.load.winograd.tile_loader import TileLoader
from tests.cores.instruction_samples import setting_of
from tests.cores.simulation import IDLE_AND_STALL, Bench, random_bits
from tests.cores.winograd_values import random_tile_box

CONFIGS = {
    "narrow": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, winograd=1, input_depth=256),
    "exact": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, winograd=2, input_depth=256),
}


class LoaderBench(Bench):
    """Shows instructions as the load queue's dispatch does."""

    def __init__(self, config, **options):
        self.config, self.loader = config, TileLoader(config)
        super().__init__(self.loader, **options)

    async def take(self, ctx, opcode: Opcode, *, index: int = 0, **fields: int) -> None:
        loader, word = self.loader, Instruction(opcode, **fields)
        ctx.set(loader.instruction, {"index": index, "word": int.from_bytes(encode(word), "little")})
        ctx.set(loader.setting, setting_of(opcode))
        ctx.set(loader.start_box, opcode == Opcode.LOAD_ACT)
        await ctx.tick()
        ctx.set(loader.setting, {})
        ctx.set(loader.start_box, 0)
        ctx.set(loader.instruction, {"index": random_bits(self.rng, 24), "word": random_bits(self.rng, 128)})
        if opcode == Opcode.LOAD_SET:       # it stands from the next cycle on
            ctx.set(Value.cast(loader.geometry), int.from_bytes(encode(word), "little"))

    async def announce(self, ctx, box, *, set_anew: bool) -> None:
        """The instructions in front of a box of tiles, and its own."""
        load = box.load
        if set_anew:
            await self.take(ctx, Opcode.LOAD_SET, cols=1, stride=1, buf_block_pitch=load["buf_block_pitch"])
            assert not ctx.get(self.loader.tiled)
            await self.take(ctx, Opcode.LOAD_WINOGRAD, **{
                name: load[name] for name in ("shifts", "tile_cols", "position_pitch")})
        assert ctx.get(self.loader.tiled) and ctx.get(self.loader.idle)
        await self.take(ctx, Opcode.LOAD_ACT, index=load["index"], rows=1, blocks=1, buf_base=load["buf_base"],
                        post_compute=load["post_compute"])
        self.to_send["pixels"].extend(self.loader.pixels.payload.shape().from_bits(bits) for bits in box.beats)


@IDLE_AND_STALL
@pytest.mark.parametrize("name", CONFIGS)
def test_tile_loader(name, idle, stall, rng):
    """After one LOAD_WINOGRAD one box or two; between them boxes of plain pixels, weights, side loads."""
    config = CONFIGS[name]
    bench = LoaderBench(config, rng=rng, idle=idle, stall=stall)
    loader = bench.loader

    def found():
        return [(entry.bank, entry.address, entry.data, entry.post)
                for entry in bench.taken["entries"]]

    async def compare(ctx):
        box = random_tile_box(config, rng, tiles=(2, 2))
        await bench.announce(ctx, box, set_anew=True)
        await bench.cycles(ctx, 40)
        await bench.reset(ctx)
        assert ctx.get(loader.idle) and not ctx.get(loader.tiled)
        for _ in range(2):
            await bench.take(ctx, Opcode.LOAD_SET, cols=1, stride=1)
            await bench.take(ctx, Opcode.LOAD_ACT, rows=1, blocks=1)
            assert ctx.get(loader.idle), "a box of plain pixels"
            tiles = int(rng.integers(1, 3)), int(rng.integers(1, 3))
            box = random_tile_box(config, rng, tiles=tiles, blocks=int(rng.integers(1, 3)))
            for again in (False, True):
                box.load["index"], box.load["post_compute"] = random_bits(rng, 24), int(rng.integers(2))
                bench.taken.clear()
                await bench.announce(ctx, box, set_anew=not again)
                assert not ctx.get(loader.idle)
                await bench.take(ctx, Opcode.LOAD_WGT, offset=0, beats=9)
                while not ctx.get(loader.idle):
                    assert ctx.get(loader.index) == box.load["index"] and not ctx.get(loader.overrun)
                    await ctx.tick()
                await ctx.tick()
                assert found() == box.entries

    bench.run(compare)


def test_an_entry_beyond_the_buffer(rng):
    config = CONFIGS["narrow"]
    bench = LoaderBench(config, rng=rng)

    async def compare(ctx):
        box = random_tile_box(config, rng, tiles=(1, 2), beyond=1)
        await bench.announce(ctx, box, set_anew=True)
        for _ in range(200):
            if ctx.get(bench.loader.overrun):
                assert ctx.get(bench.loader.index) == box.load["index"]
                return
            await ctx.tick()
        raise AssertionError("not reported")

    bench.run(compare)


def test_needs_winograd():
    with pytest.raises(ValueError, match="winograd must be 1 or 2, not 0"):
        TileLoader(NpuConfig.preset(16)).elaborate(None)
