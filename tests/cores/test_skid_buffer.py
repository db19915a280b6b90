"""Skid buffer: what waits in it, ready a register; order and rate are in `test_stream_buffer`."""

import pytest

from cores.lib.skid_buffer import SkidBuffer
from tests.cores.simulation import Bench


@pytest.mark.parametrize("taken", [0, 1])
def test_ready_does_not_follow_the_consumer(taken):
    """One payload is taken while the consumer waits, then none until a cycle after its next one."""
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


def test_nothing_waits_once_all_is_taken():
    buffer = SkidBuffer(4)
    bench = Bench(buffer)

    async def compare(ctx):
        ctx.set(buffer.input.valid, 1)
        await ctx.tick()
        ctx.set(buffer.input.valid, 0)
        assert ctx.get(buffer.waits)
        ctx.set(buffer.output.ready, 1)
        await ctx.tick()
        assert not ctx.get(buffer.waits) and not ctx.get(buffer.output.valid)

    bench.run(compare)
