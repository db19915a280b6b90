"""Accumulator slice against a list of words: begun, added to as soon as may be, read by the store engine."""

import numpy as np
import pytest
from amaranth.hdl import Value

from cores.buffers.accumulators import Accumulators, AccumulatorSlice
from cores.config import NpuConfig
from tests.cores.mac_values import random_integers
from tests.cores.simulation import Bench, random_bits
from tests.cores.store_values import pack

CONFIGS = {
    "24": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, acc_width=24, acc_depth=64),
    "32": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=4, acc_width=32, acc_depth=64),
    "binary": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, gather=1, binary_rows=1, acc_depth=64),
}


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("name", CONFIGS)
def test_accumulator_slice(name, lanes, rng):
    """A word a cycle, the same again after `Accumulators.HAZARD` cycles; the store engine reads another meanwhile."""
    config = CONFIGS[name]
    accumulators = AccumulatorSlice(config, lanes=lanes)
    width, words = config.acc_width, 2 * config.acc_depth
    bench = Bench(accumulators)

    async def add(ctx, cycles):
        """Words are known once they are begun, so the first cycles begin them all."""
        totals = np.zeros((words, lanes), np.int64)     # with all that has set out
        visible = np.zeros((words, lanes), np.int64)    # what a read finds
        used = np.full(words, -Accumulators.HAZARD)
        stages: list = [None] * 4                       # (word, first) of the last cycles, the present one first
        total = written = stored = None
        for cycle in range(cycles):
            free = np.flatnonzero(cycle - used >= Accumulators.HAZARD)
            # The one that has been free for the shortest time, often.
            again = free[used[free].argmax()] if rng.random() < 0.5 else rng.choice(free)
            word = cycle if cycle < words else int(again)
            sets_out = cycle < words or rng.random() < 0.8
            first = cycle < words or rng.random() < 0.2
            used[word] = cycle if sets_out else used[word]
            stages = [(word, first) if sets_out else None, *stages[:3]]
            ctx.set(accumulators.read_address, word)
            ctx.set(accumulators.clear, bool(stages[1][1]) if stages[1] else random_bits(rng, 1))
            sums, carries = random_integers(rng, (lanes,), config.sum_bits), rng.integers(0, 2, lanes)
            ctx.set(Value.cast(accumulators.sums), pack(sums, config.sum_bits))
            ctx.set(accumulators.carries, pack(carries, 1))
            written = total
            if stages[2]:
                at, begins = stages[2]
                half = 1 << width - 1
                total = ((0 if begins else totals[at]) + sums + carries + half) % (2 * half) - half
                totals[at] = total
            ctx.set(accumulators.write_enable, stages[3] is not None)
            ctx.set(accumulators.write_address, stages[3][0] if stages[3] else random_bits(rng, 7))
            reads = cycle >= words + Accumulators.LATENCY and rng.random() < 0.7
            address = int(rng.integers(words))
            ctx.set(accumulators.store_enable, reads)
            ctx.set(accumulators.store_address, address)
            if stored is not None:
                assert ctx.get(Value.cast(accumulators.store_data)) == stored, f"cycle {cycle}"
            if reads:
                stored = pack(visible[address], width)
            await ctx.tick()
            if stages[3]:
                visible[stages[3][0]] = written

    async def compare(ctx):
        await add(ctx, 2 * words)
        await bench.reset(ctx)
        await add(ctx, 5 * words)

    bench.run(compare)


def test_needs_lanes():
    with pytest.raises(ValueError, match="lanes must be at least 1, not 0"):
        AccumulatorSlice(CONFIGS["24"], lanes=0)
