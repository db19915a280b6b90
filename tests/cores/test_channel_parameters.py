"""Channel parameters: eight beats at a time from a stream that pauses, held until they are released."""

import pytest

from cores.arch.numerics import MIN_SHIFT, PARAMETER_BYTES
from cores.config import NpuConfig
from cores.store.channel_parameters import ChannelParameters
from tests.cores.simulation import Bench
from tests.cores.store_values import pack_parameters, random_channels

CONFIGS = {
    "4": NpuConfig(oc_lanes=4, ic_lanes=4, nnz_lanes=1),
    "8": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, acc_width=24),
    "16": NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=1, acc_width=32),
    "32": NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=1),
}


@pytest.mark.parametrize("idle, disabled", [(0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (0.4, 0.4)])
@pytest.mark.parametrize("name", CONFIGS)
def test_channel_parameters(name, idle, disabled, rng):
    """``disabled``: how often ``enable`` is low between a block's beats."""
    config = CONFIGS[name]
    parameters = ChannelParameters(config)
    bench = Bench(parameters, rng=rng, idle=idle)

    async def load(ctx, blocks):
        """Blocks one after the other; the beats of all of them wait in the stream."""
        channels = [random_channels(rng, config.ic_lanes, config.acc_width) for _ in range(blocks)]
        for block in channels:
            bench.to_send["beats"].extend(pack_parameters(*block, config.beat_bytes))
        for number, (bias, multiplier, shift) in enumerate(channels, start=1):
            cycles, loaded = 0, False
            while not loaded:
                ctx.set(parameters.enable, not bench.pauses(disabled))
                ctx.set(parameters.release, 0)
                _, _, loaded = await ctx.tick().sample(parameters.loaded)
                cycles += 1
                assert cycles < 1000
            if not idle and not disabled:
                assert bench.sent_at["beats"][-1] - bench.sent_at["beats"][-PARAMETER_BYTES] == PARAMETER_BYTES - 1
            for _ in range(int(rng.integers(1, 5))):
                assert not ctx.get(parameters.beats.ready) and not ctx.get(parameters.loaded)
                for lane in range(config.ic_lanes):
                    found = ctx.get(parameters.channels[lane])
                    assert (found.bias, found.multiplier, found.shift + MIN_SHIFT) == (
                        bias[lane], multiplier[lane], shift[lane]), f"channel {lane}"
                ctx.set(parameters.enable, 1)
                await ctx.tick()
            assert len(bench.sent_at["beats"]) == number * PARAMETER_BYTES
            ctx.set(parameters.release, 1)
            await ctx.tick()

    async def compare(ctx):
        for beats in (1, 3, 7):     # broken off
            ctx.set(parameters.enable, 1)
            bench.to_send["beats"].extend(range(beats))
            await bench.until(ctx, lambda count=beats: len(bench.sent_at["beats"]) == count)
            await bench.reset(ctx)
        await load(ctx, 6)

    bench.run(compare)


def test_a_release_makes_room_at_once(rng):
    config = CONFIGS["8"]
    parameters = ChannelParameters(config)
    bench = Bench(parameters, rng=rng)

    async def compare(ctx):
        ctx.set(parameters.enable, 1)
        bench.to_send["beats"].extend(range(2 * PARAMETER_BYTES))
        await bench.until(ctx, lambda: len(bench.sent_at["beats"]) == PARAMETER_BYTES)
        ctx.set(parameters.release, 1)
        released = bench.cycle
        await ctx.tick()
        ctx.set(parameters.release, 0)
        await bench.until(ctx, lambda: len(bench.sent_at["beats"]) == 2 * PARAMETER_BYTES)
        assert bench.sent_at["beats"][PARAMETER_BYTES:] == list(range(released + 1, released + 1 + PARAMETER_BYTES))

    bench.run(compare)
