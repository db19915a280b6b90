"""Tile loops against loops in Python: tiles of every kind, one after the other, with pauses."""

import pytest
from amaranth.hdl import Value

from cores.arch.instruction import encode
from cores.arch.isa import Opcode
from cores.compute.tile_loops import TileLoops
from cores.config import NpuConfig
from tests.cores.simulation import Bench, random_bits
from tests.cores.tile_values import flags_of_steps, is_window, loop_cycles, random_geometry, random_tile

CONFIGS = {
    "one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, acc_depth=64),
    "two_pixels": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, winograd=1, acc_depth=64),
    "two_banks": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, depthwise=1, acc_depth=64),
    "four_banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, acc_depth=64),
    "phases": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=8, select_fanin=1, depthwise=1, acc_depth=64),
    "phases_of_two_taps": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, select_fanin=4, depthwise=1, acc_depth=64),
    "phases_four_banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, select_fanin=2, depthwise=1, winograd=1,
                                   acc_depth=64),
}

FLAGS = ("at_start", "last", "first_step", "last_step", "last_tap", "group", "next_group")


@pytest.mark.parametrize("idle", [0.0, 0.3])
@pytest.mark.parametrize("name", CONFIGS)
def test_tile_loops(name, idle, rng):
    """A cycle's work a cycle; the next tile starts in the last cycle of the one before, or later."""
    config = CONFIGS[name]
    loops = TileLoops(config)
    bench = Bench(loops, rng=rng)

    def offer(ctx, geometry, tile):
        for port, instruction in ((loops.next_geometry, geometry), (loops.next_word, tile)):
            ctx.set(Value.cast(port), int.from_bytes(encode(instruction), "little"))
        ctx.set(loops.next_pool, tile.opcode == Opcode.POOL)
        ctx.set(loops.next_kinds, flags_of_steps(config, tile))
        ctx.set(loops.start, 0)

    async def begin(ctx, geometry, tile):
        """From rest: prepare, start."""
        ctx.set(loops.go, 0)
        offer(ctx, geometry, tile)
        for _ in range(TileLoops.PREPARE):
            assert not ctx.get(loops.running)
            await ctx.tick()
        ctx.set(loops.start, 1)
        await ctx.tick()

    def compare(ctx, expected, pool):
        """Reads, flags and words of a cycle."""
        for flag in FLAGS:
            # A POOL has no steps.
            if not (pool and flag.endswith(("_step", "group"))):
                assert ctx.get(getattr(loops, flag)) == getattr(expected, flag), flag
        for bank, entry in expected.entries.items():
            assert ctx.get(loops.address[bank]) == entry, f"bank {bank}"
        if expected.first_bank is not None:
            assert (ctx.get(loops.turn) + ctx.get(loops.lane)) % config.banks == expected.first_bank
        if not pool:
            found = {"lower": loops.acc_address, "upper": loops.upper_address}
            for group, address in found.items():
                wanted = getattr(expected, group)
                assert ctx.get(getattr(loops, group)) == (wanted is not None), group
                assert wanted is None or ctx.get(address) == wanted, group

    async def run(ctx, count, *, broken_off=None):
        """``count`` tiles, the last of which is broken off after some cycles."""
        tiles = []
        for _ in range(count):
            geometry = random_geometry(config, rng)
            tiles.append((geometry, random_tile(config, rng, geometry)))
        await begin(ctx, *tiles[0])
        for number, (geometry, tile) in enumerate(tiles):
            for port in (loops.next_geometry, loops.next_word, loops.next_kinds):
                ctx.set(Value.cast(port), random_bits(rng, len(Value.cast(port))))
            ctx.set(loops.start, 0)
            following = tiles[number + 1] if number + 1 < len(tiles) else None
            cycles = list(loop_cycles(config, geometry, tile))
            at_once = following and len(cycles) > TileLoops.PREPARE and not bench.pauses(0.3)
            for cycle, expected in enumerate(cycles):
                if broken_off == cycle and following is None:
                    return
                if at_once and cycle == len(cycles) - 1 - TileLoops.PREPARE:
                    offer(ctx, *following)
                while bench.pauses(idle):
                    ctx.set(loops.go, 0)
                    compare(ctx, expected, tile.opcode == Opcode.POOL)
                    await ctx.tick()
                compare(ctx, expected, tile.opcode == Opcode.POOL)
                assert ctx.get(loops.window) == is_window(tile)
                assert ctx.get(loops.kinds) == flags_of_steps(config, tile)
                assert ctx.get(loops.running)
                ctx.set(loops.go, 1)
                ctx.set(loops.start, bool(expected.last and at_once))
                await ctx.tick()
            ctx.set(loops.go, 0)
            if following and not at_once:
                await begin(ctx, *following)

    async def tiles_and_a_reset(ctx):
        await run(ctx, 3, broken_off=4)
        ctx.set(loops.go, 0)
        await bench.reset(ctx)
        await run(ctx, 18)

    bench.run(tiles_and_a_reset)
