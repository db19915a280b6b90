"""Buffers of a stream: everything in order, a payload a cycle, ready a register."""

import pytest

from cores.lib.skid_buffer import SkidBuffer
from cores.lib.stream_buffer import StreamBuffer
from tests.cores.simulation import IDLE_AND_STALL, Bench, random_bits


@pytest.mark.parametrize("make", [StreamBuffer, SkidBuffer])
@IDLE_AND_STALL
def test_order_and_rate(make, idle, stall, rng):
    buffer = make(12)
    bench = Bench(buffer, rng=rng, idle=idle, stall=stall)

    async def compare(ctx):
        for count in (20, 300):     # the first ones are broken off by a reset
            payloads = [random_bits(rng, 12) for _ in range(count)]
            bench.to_send["input"].extend(payloads)
            if count == 20:
                await bench.cycles(ctx, 10)
                await bench.reset(ctx)
                continue
            await bench.until(ctx, lambda: len(bench.taken["output"]) == count)     # noqa: B023 - called at once
            assert bench.taken["output"] == payloads
            if not stall:
                assert bench.taken_at["output"] == [at + make.LATENCY for at in bench.sent_at["input"]]
            if not idle and not stall:
                assert bench.taken_at["output"][-1] - bench.taken_at["output"][0] == count - 1

    bench.run(compare)


@pytest.mark.parametrize("taken", [0, 1])
def test_ready_does_not_follow_the_consumer(taken, rng):
    """Two payloads are taken while the consumer waits, then none until a cycle after its next one."""
    buffer = StreamBuffer(4)
    bench = Bench(buffer)

    async def compare(ctx):
        ctx.set(buffer.input.valid, 1)
        for payload, ready in ((3, 1), (4, 1), (5, 0)):
            ctx.set(buffer.input.payload, payload)
            assert ctx.get(buffer.input.ready) == ready
            await ctx.tick()
        ctx.set(buffer.output.ready, taken)
        assert ctx.get(buffer.output.payload) == 3 and not ctx.get(buffer.input.ready)
        await ctx.tick()
        assert ctx.get(buffer.output.payload) == 3 + taken and ctx.get(buffer.input.ready) == taken

    bench.run(compare)
