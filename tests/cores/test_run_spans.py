"""Run spans against the product, for LOAD_GATHERs among other instructions, with pauses and back-pressure."""

import pytest
from amaranth.hdl import Value

from cores.arch.isa import Opcode, Queue, encode
from cores.config import NpuConfig
from cores.load.gather.run_spans import RunSpans
from tests.cores.instruction_samples import random_instruction, span_of
from tests.cores.simulation import IDLE_AND_STALL, Bench, random_bits

CONFIG = NpuConfig(gather=1)
DEPTH = 4


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_depth(depth):
    with pytest.raises(ValueError, match=f"depth must be a power of two above 1, not {depth}"):
        RunSpans(depth=depth)


@IDLE_AND_STALL
def test_run_spans(idle, stall, rng):
    """An instruction stands for a cycle before it is handed on, as the requester looks at it, and comes every second
    cycle at the soonest; no more are under way than there is room for. Spans of those before a reset are gone.
    """
    spans = RunSpans(depth=DEPTH)
    bench = Bench(spans, rng=rng, idle=idle, stall=stall)
    word = Value.cast(spans.word)

    async def compare(ctx):
        for reset_at in (30, None):
            expected, handed_on = [], []
            for number in range(120):
                if number == reset_at:
                    break
                instruction = random_instruction((Queue.LOAD,), CONFIG)
                ctx.set(word, int.from_bytes(encode(instruction), "little"))
                await ctx.tick()
                while bench.pauses(bench.idle) or len(expected) - len(bench.taken["spans"]) == DEPTH:
                    await ctx.tick()
                ctx.set(spans.hand_on, 1)
                if instruction.opcode == Opcode.LOAD_GATHER:
                    expected.append(span_of(instruction))
                    handed_on.append(bench.cycle)
                await ctx.tick()
                ctx.set(spans.hand_on, 0)
                ctx.set(word, random_bits(rng, 128))
                if bench.pauses(bench.idle):
                    await ctx.tick()
            if reset_at is not None:
                await bench.reset(ctx)
        await bench.until(ctx, lambda: len(bench.taken["spans"]) == len(expected))
        assert len(expected) > 10 and bench.taken["spans"] == expected
        if not stall:
            assert bench.taken_at["spans"] == [cycle + RunSpans.LATENCY for cycle in handed_on]

    bench.run(compare)
