"""Pixel path: what enters leaves a cycle later, data or padding; beats of the store engine go in front."""

import numpy as np
import pytest

from cores.arch.instruction_layout import instruction_layout
from cores.arch.isa import Opcode
from cores.config import NpuConfig
from cores.load.pixel_path import PixelPath
from tests.cores.simulation import Bench, random_bits, random_fields
from tests.cores.store_values import pack

CONFIGS = {
    "plain": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1),
    "local": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, local_store=1),
}


@pytest.mark.parametrize("idle, kept_often", [(0.0, 0.0), (0.4, 0.0), (0.0, 0.6), (0.4, 0.4)])
@pytest.mark.parametrize("name", CONFIGS)
def test_pixel_path(name, idle, kept_often, rng):
    config = CONFIGS[name]
    path = PixelPath(config)
    bench = Bench(path, rng=rng)
    layout = instruction_layout(Opcode.LOAD_SET)

    async def compare(ctx):
        due = placed = width = None
        for cycle in range(300):
            if cycle == 100:
                await bench.reset(ctx)
                due = placed = width = None
            geometry = random_fields(rng, layout, pad_value=int(rng.integers(-128, 128)))
            ctx.set(path.geometry, geometry)
            kept = bool(config.local_store) and bench.pauses(kept_often)
            if config.local_store:
                beat = {"enable": 1 << int(rng.integers(config.banks)), "payload": random_bits(rng, config.beat_bits)}
                ctx.set(path.kept, beat if kept else {"payload": beat["payload"]})
            assert ctx.get(path.settled) and ctx.get(path.room) == (not kept)
            assert ctx.get(path.left) == geometry["pad_left"]
            assert width is None or ctx.get(path.width) == width
            is_set, extent = int(rng.random() < 0.2), random_bits(rng, len(path.extent))
            ctx.set(path.setting, {"load_set": is_set})
            ctx.set(path.extent, extent)
            width = extent if is_set else width
            enter = random_fields(rng, path.enter.shape(), valid=int(not kept and not bench.pauses(idle)))
            ctx.set(path.enter, enter)
            padding = pack(np.full(config.beat_bytes, geometry["pad_value"]), 8)
            pixel = enter["beat"] if enter["is_data"] else padding
            assert ctx.get(path.pixel) == pixel
            found = ctx.get(path.placed)
            assert found.lanes == (placed is not None)
            if placed:
                assert (found.row_end, found.block_end, found.next_entry, found.run) == (*placed, 1, 0)
            placed = (enter["row_end"], enter["block_end"]) if enter["valid"] else None
            if due is not None:
                assert ctx.get(path.value.data) == due
            due = beat["payload"] if kept else pixel if enter["valid"] else None
            await ctx.tick()

    bench.run(compare)
