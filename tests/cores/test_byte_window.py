"""Byte window against a ring of four beats."""

import numpy as np
import pytest
from amaranth.hdl import Value

from cores.load.gather.byte_window import ByteWindow
from tests.cores.simulation import Bench, random_bits
from tests.cores.store_values import pack

LATENCY = 3


@pytest.mark.parametrize("lanes, runs, lane_bits", [(8, 1, 8), (8, 2, 9), (16, 2, 8), (32, 1, 8)])
def test_byte_window(lanes, runs, lane_bits, rng):
    """Runs from any byte to any byte in every cycle, while beats enter or do not; also right after a reset."""
    window = ByteWindow(lanes=lanes, runs=runs, lane_bits=lane_bits)
    slots = ByteWindow.SLOTS
    bench = Bench(window)

    async def stream(ctx, cycles):
        held = np.zeros((slots, lanes), np.int64)
        due, late = [], 0
        for cycle in range(cycles):
            entering = cycle < slots or rng.random() < 0.6
            enter_slot = cycle if cycle < slots else int(rng.integers(slots))
            beat = rng.integers(0, 1 << lane_bits, lanes)
            ctx.set(window.enter, entering)
            ctx.set(window.enter_slot, enter_slot)
            ctx.set(Value.cast(window.beat), late)
            late = pack(beat, lane_bits) if entering else random_bits(rng, lanes * lane_bits)
            expected = []
            for run in range(runs):
                slot, offset, place = (int(number) for number in rng.integers([slots, lanes, lanes]))
                for port, value in ((window.slot, slot), (window.offset, offset), (window.turn, offset - place)):
                    ctx.set(port[run], value % (slots if port is window.slot else lanes))
                taken = np.roll(held.ravel(), -(slot * lanes + offset))[:lanes]
                expected.append(pack(np.roll(taken, place), lane_bits))
            due.append(expected if cycle >= slots else None)
            if cycle >= LATENCY and (wanted := due[cycle - LATENCY]):
                assert [ctx.get(Value.cast(window.output[run])) for run in range(runs)] == wanted
            if entering:
                held[enter_slot] = beat
            await ctx.tick()

    async def compare(ctx):
        await stream(ctx, 20)
        ctx.set(Value.cast(window.beat), random_bits(rng, lanes * lane_bits))
        await bench.reset(ctx)
        await stream(ctx, 250)

    bench.run(compare)


@pytest.mark.parametrize("lanes", [6, 12])
def test_refuses_lanes(lanes):
    with pytest.raises(ValueError, match=f"lanes must be a power of two, not {lanes}"):
        ByteWindow(lanes=lanes, runs=1)
