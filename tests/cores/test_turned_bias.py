"""Turned bias: channel parameters against integers, with pauses and back-pressure."""

import numpy as np
import pytest

from cores.config import NpuConfig
from cores.load.turn.turned_bias import TurnedBias
from tests.cores.simulation import Bench


@pytest.mark.parametrize("lanes", [8, 32])
@pytest.mark.parametrize("idle, stall", [(0.0, 0.0), (0.3, 0.4)])
def test_turned_bias(lanes: int, idle: float, stall: float, rng: np.random.Generator) -> None:
    config = NpuConfig(oc_lanes=2 * lanes, ic_lanes=lanes, nnz_lanes=4, select_fanin=lanes // 4, turn=1)
    bench = Bench(TurnedBias(config), rng=rng, idle=idle, stall=stall)
    bias, sums = bench.component, rng.integers(-1 << 23, 1 << 23, config.oc_lanes)

    async def look_up(ctx) -> None:
        while True:
            _, _, lane = await ctx.tick().sample(bias.lane)
            ctx.set(bias.sum, int(sums[lane]))

    async def compare(ctx) -> None:
        for group, blocks in ((1, 1), (0, 2)):
            zero_point = int(rng.choice([-128, 127, rng.integers(-128, 128)]))
            ctx.set(bias.zero_point, zero_point)
            ctx.set(bias.group, group)
            ctx.set(bias.begin, 1)
            await ctx.tick()
            ctx.set(bias.begin, 0)
            words = rng.integers(0, 1 << 32, (blocks * lanes, 2))
            expected = words.copy()
            expected[:, 0] -= zero_point * sums[group * lanes:][:blocks * lanes]
            bench.taken.clear(), bench.sent_at.clear(), bench.taken_at.clear()
            bench.to_send["beats"].extend(int.from_bytes(beat.tobytes(), "little")
                                          for beat in words.astype(np.uint32).reshape(8 * blocks, -1))
            await bench.until(ctx, lambda: not bench.to_send["beats"] and not ctx.get(bias.busy))
            found = b"".join(beat.to_bytes(lanes, "little") for beat in bench.taken["output"])
            np.testing.assert_array_equal(np.frombuffer(found, np.uint32).reshape(-1, 2), expected & 0xFFFFFFFF)
            if not idle:
                assert set(np.diff(bench.sent_at["beats"])) == {bias.cycles(config)}
                np.testing.assert_array_equal(np.subtract(bench.taken_at["output"], bench.sent_at["beats"]),
                                              bias.latency(config))

    bench.run(compare, background=[look_up])
