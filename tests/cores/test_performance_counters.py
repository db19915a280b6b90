"""Performance counters against sums in Python."""

import random

import pytest

from cores.control import performance_counters
from cores.control.performance_counters import PerformanceCounters
from tests.cores.simulation import log_seed, simulate


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 21, 32])
def test_sums_are_exact_when_valid(count, monkeypatch):
    """With few lower bits, so that sums often carry into the upper ones."""
    monkeypatch.setattr(performance_counters, "_LOWER_BITS", 7)
    log_seed()
    counters = PerformanceCounters(count=count)
    rates = [random.choice([0.0, 0.02, 0.5, 1.0]) for _ in range(count)]

    async def bench(ctx):
        before = model = [0] * count
        waited = select = 0
        for step in range(6000):
            clear = step in (0, 1500, 1503) or random.random() < 0.001
            if waited == 0:
                select = random.randrange(count)
            events = sum(1 << k for k in range(count) if random.random() < rates[k])
            ctx.set(counters.events, events)
            ctx.set(counters.clear, clear)
            ctx.set(counters.select, select)
            if ctx.get(counters.valid):
                assert ctx.get(counters.value) == before[select], (step, select)
                waited = 0
            else:
                waited += 1
                assert waited < count, "the counter never came by"
            await ctx.tick()
            before = model      # `LATENCY` cycles ago
            model = [0] * count if clear else [model[k] + (events >> k & 1) for k in range(count)]

    simulate(counters, bench)


@pytest.mark.parametrize("count", [1, 33])
def test_refuses_counts(count):
    with pytest.raises(ValueError, match=rf"count must be in 2\.\.32, not {count}"):
        PerformanceCounters(count=count)
