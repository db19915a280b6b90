"""Skid buffer: everything in order, at once where it can, ready a register."""

import pytest

from cores.lib.skid_buffer import SkidBuffer
from tests.cores.simulation import IDLE_AND_STALL, Bench, random_bits


@IDLE_AND_STALL
def test_order_and_rate(idle, stall, rng):
    buffer = SkidBuffer(12)
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
                assert bench.taken_at["output"] == [at + SkidBuffer.LATENCY for at in bench.sent_at["input"]]
            if not idle and not stall:
                assert bench.taken_at["output"][-1] - bench.taken_at["output"][0] == count - 1
            assert not ctx.get(buffer.waits)

    bench.run(compare)


@pytest.mark.parametrize("taken", [0, 1])
def test_ready_does_not_follow_the_consumer(taken):
    """One payload is taken while the consumer waits, then none until a cycle behind its next one."""
    buffer = SkidBuffer(4)
    bench = Bench(buffer)

    async def compare(ctx):
        ctx.set(buffer.input.valid, 1)
        for payload, ready in ((3, 1), (4, 0)):
            ctx.set(buffer.input.payload, payload)
            assert ctx.get(buffer.input.ready) == ready and ctx.get(buffer.waits) == 1 - ready
            assert ctx.get(buffer.output.payload) == 3
            await ctx.tick()
        ctx.set(buffer.output.ready, taken)
        assert ctx.get(buffer.output.payload) == 3 and not ctx.get(buffer.input.ready)
        await ctx.tick()
        assert ctx.get(buffer.output.payload) == 3 + taken and ctx.get(buffer.input.ready) == taken

    bench.run(compare)
