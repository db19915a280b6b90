"""Burst splitter against the list of bursts that AXI asks for."""

import random

import pytest

from cores.bus.burst_splitter import BurstSplitter
from tests.cores.simulation import log_seed, simulate

GOOD = dict(address_width=40, beat_bytes=16, length_width=12, tag_width=4, burst_beats=256)


def bursts_of(address, beats, tag, *, beat_bytes, burst_beats):
    """(address, length, final, tag) of each burst."""
    made = []
    while beats:
        room = burst_beats - address // beat_bytes % burst_beats
        length = min(beats, room)
        made.append((address, length - 1, length == beats, tag))
        address, beats = address + length * beat_bytes, beats - length
    return made


@pytest.mark.parametrize("beat_bytes, burst_beats, length_width", [
    (8, 256, 12), (16, 256, 12), (32, 128, 12), (16, 16, 12), (16, 256, 4)])
@pytest.mark.parametrize("idle, stall", [(0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (0.4, 0.4)])
def test_bursts_of_random_runs(beat_bytes, burst_beats, length_width, idle, stall):
    log_seed()
    splitter = BurstSplitter(**{**GOOD, "beat_bytes": beat_bytes, "burst_beats": burst_beats,
                                "length_width": length_width})
    longest = 1 << length_width
    runs = []
    for _ in range(150):
        beats = random.choice([1, 2, burst_beats, random.randint(1, 3 * burst_beats), random.randint(1, longest)])
        beats = min(beats, longest)
        page = random.randrange(1 << 28) * 4096
        runs.append((page + beat_bytes * random.choice([0, 1, -1, -beats, random.randrange(512)]) & (1 << 40) - 1,
                     beats, random.randrange(16)))
    # Runs stay inside the address space, as the engines' own bound checks see to.
    runs = [run for run in runs if run[0] + run[1] * beat_bytes <= 1 << 40]
    expected = [burst for run in runs for burst in bursts_of(*run, beat_bytes=beat_bytes, burst_beats=burst_beats)]
    got, cycles = [], 0

    async def bench(ctx):
        nonlocal cycles
        waiting, offered = list(runs), False
        while len(got) < len(expected):
            offered = bool(waiting) and (offered or random.random() >= idle)
            willing = random.random() >= stall
            ctx.set(splitter.run.valid, offered)
            if offered:
                address, beats, tag = waiting[0]
                ctx.set(splitter.run.p, {"address": address, "length": beats - 1, "tag": tag})
            ctx.set(splitter.burst.ready, willing)
            taken = offered and ctx.get(splitter.run.ready)
            if willing and ctx.get(splitter.burst.valid):
                p = ctx.get(splitter.burst.p)
                got.append((p.address, p.length, p.final, p.tag))
            await ctx.tick()
            cycles += 1
            if taken:
                waiting.pop(0)
                offered = False
        assert ctx.get(splitter.idle)

    simulate(splitter, bench)
    assert got == expected
    if not idle and not stall:
        assert cycles == len(expected) + 1, "one burst a cycle after a latency of one"


@pytest.mark.parametrize("name, value, message", [
    ("beat_bytes", 12, r"beat_bytes must be a power of two in 4\.\.128, not 12"),
    ("length_width", 0, "length_width must be positive, not 0"),
    ("tag_width", 0, "tag_width must be positive, not 0"),
    ("burst_beats", 512, r"burst_beats must be a power of two in 2\.\.256, not 512"),
    ("burst_beats", 3, r"burst_beats must be a power of two in 2\.\.256, not 3"),
])
def test_refuses_parameters(name, value, message):
    with pytest.raises(ValueError, match=message):
        BurstSplitter(**{**GOOD, name: value})
