"""Run spans against integers, for LOAD_GATHERs among other instructions, with pauses and back-pressure."""

import pytest
from amaranth.hdl import Value

from cores.arch.instruction import encode
from cores.arch.isa import Opcode, Queue
from cores.config import NpuConfig
from cores.load.gather.run_spans import RunSpans
from tests.cores.instruction_samples import random_instruction, span_of
from tests.cores.simulation import IDLE_AND_STALL, Bench, random_bits

CONFIGS = {
    "8": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1),
    "32": NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=1, gather=1),
}
DEPTH = 4


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_depth(depth):
    with pytest.raises(ValueError, match=f"depth must be a power of two above 1, not {depth}"):
        RunSpans(CONFIGS["8"], depth=depth)


@IDLE_AND_STALL
@pytest.mark.parametrize("name", CONFIGS)
def test_run_spans(name, idle, stall, rng):
    """An instruction stands for a cycle before it is handed on, as the requester looks at it, and comes every second
    cycle at the soonest; no more are under way than there is room for. Spans of those before a reset are gone.
    """
    config = CONFIGS[name]
    spans = RunSpans(config, depth=DEPTH)
    bench = Bench(spans, rng=rng, idle=idle, stall=stall)
    word = Value.cast(spans.word)

    async def compare(ctx):
        for reset_at in (30, None):
            expected, handed_on = [], []
            for number in range(120):
                if number == reset_at:
                    break
                instruction = random_instruction((Queue.LOAD,), config)
                ctx.set(word, int.from_bytes(encode(instruction), "little"))
                await ctx.tick()
                while bench.pauses(bench.idle) or len(expected) - len(bench.taken["spans"]) == DEPTH:
                    await ctx.tick()
                ctx.set(spans.hand_on, 1)
                if instruction.opcode == Opcode.LOAD_GATHER:
                    expected.append(span_of(instruction, config.beat_bytes))
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
