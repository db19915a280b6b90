"""Entry placer against the places that docs/architecture.md gives a box's columns."""

import random

import pytest

from cores.config import NpuConfig
from cores.load.entry_placer import EntryPlacer
from sim.storage import entry_places
from tests.cores.simulation import log_seed, simulate

CONFIGS = {
    "one_bank": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, input_depth=256),
    "two_banks": NpuConfig.preset(16, input_depth=256),
    "pairs": NpuConfig.preset(16, gather=1, input_depth=256),
    "four_banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, gather=1, input_depth=256),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_entry_placer(name):
    """Boxes of pixels, and of runs, one or ``write_lanes`` in a cycle, that begin and end rows, blocks and buffer."""
    log_seed()
    config = CONFIGS[name]
    placer = EntryPlacer(config)

    async def bench(ctx):
        for _ in range(40):
            run = random.randrange(2) if config.gather else 0
            stride = random.randint(1, 4)
            geometry = {"stride": stride, "buf_row_pitch": random.randrange(9), "buf_block_pitch": random.randrange(99)}
            base = random.choice([0, random.randrange(config.input_depth)])
            width = random.randint(1, 12)
            banks, entries = entry_places(config.banks, 1 if run else stride, 0, width)
            lanes = random.choice([1, config.write_lanes]) if run else 1
            ctx.set(placer.geometry, geometry)
            ctx.set(placer.base, base)
            ctx.set(placer.start, 1)
            await ctx.tick()
            ctx.set(placer.start, 0)
            block_entry = base
            for _ in range(3):
                next_entry = random.randrange(2)
                for row in range(2):
                    for first in range(0, width, lanes):
                        count = min(lanes, width - first)
                        while random.random() < 0.2:
                            ctx.set(placer.pixels, {"lanes": 0, "row_end": 1, "block_end": 1, "next_entry": 1})
                            await ctx.tick()
                        row_end = first + count == width
                        ctx.set(placer.pixels, {
                            "lanes": (1 << count) - 1, "row_end": row_end, "block_end": row_end and row == 1,
                            "next_entry": next_entry, "run": run})
                        entry = block_entry + row * geometry["buf_row_pitch"] + int(entries[first])
                        assert ctx.get(placer.entry) == entry
                        assert ctx.get(placer.enable) == sum(1 << int(banks[first + i]) for i in range(count))
                        assert ctx.get(placer.overrun) == (entry >= config.input_depth)
                        await ctx.tick()
                block_entry += geometry["buf_block_pitch"] * next_entry
            ctx.set(placer.pixels, {"lanes": 0})

    simulate(placer, bench)
