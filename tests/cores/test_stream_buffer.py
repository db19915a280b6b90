"""Stream buffer: what goes in comes out, in order, one in every cycle; two may wait."""

from cores.lib.stream_buffer import StreamBuffer
from tests.cores.simulation import IDLE_AND_STALL, Bench, random_bits


@IDLE_AND_STALL
def test_stream_buffer(idle, stall, rng):
    buffer = StreamBuffer(9)
    bench = Bench(buffer, rng=rng, idle=idle, stall=stall)

    async def compare(ctx):
        bench.to_send["input"].extend(random_bits(rng, 9) for _ in range(20))
        await bench.cycles(ctx, 8)
        await bench.reset(ctx)
        values = [random_bits(rng, 9) for _ in range(200)]
        bench.to_send["input"].extend(values)
        await bench.until(ctx, lambda: len(bench.taken["output"]) == len(values))
        assert bench.taken["output"] == values
        sent, taken = bench.sent_at["input"], bench.taken_at["output"]
        assert all(out >= into + StreamBuffer.LATENCY for into, out in zip(sent, taken, strict=True))
        if not idle and not stall:
            assert sent[-1] - sent[0] == taken[-1] - taken[0] == len(values) - 1
            assert taken[0] == sent[0] + StreamBuffer.LATENCY
        if stall:       # two wait, and no more
            waiting = [sum(time <= cycle for time in sent) - sum(time <= cycle for time in taken)
                       for cycle in range(sent[0], sent[-1])]
            assert max(waiting) == StreamBuffer.DEPTH

    bench.run(compare)
