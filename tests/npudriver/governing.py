"""Tables of levels and traces of charges for tests of the governor: by hand, and at random."""

from dataclasses import replace
from typing import Any

import numpy as np

from npudriver.levels import FULL, Level, LevelTable, Plan

__all__ = ["level", "random_table", "random_trace", "table"]


def level(name: str, **changed: Any) -> Level:
    parts = dict(program=0, shift=0, clock_khz=0, millivolts=0, time_ns=1000, energy=100, right=9000, above_ppm=0)
    return Level(name, **{**parts, **changed})


def table(*, battery: int = 0, **plan: Any) -> LevelTable:
    """Three levels, above 60 % and 30 % of the charge, each half as long and half the energy of the one before it."""
    levels = [level("full", time_ns=4000, energy=400, right=9500, above_ppm=600_000),
              level("half", time_ns=2000, energy=200, right=9000, above_ppm=300_000),
              level("quarter", time_ns=1000, energy=100, right=8000)]
    return LevelTable(tuple(levels), Plan(**{"hysteresis_ppm": 50_000, **plan}), battery)


def random_table(rng: np.random.Generator) -> tuple[list[Level], Plan, int]:
    """Levels, a plan and a battery, most of which go together."""
    count = int(rng.integers(1, 7))
    most = int(rng.choice([50, 10_000, 1 << 43]))
    energies = sorted(rng.choice(np.arange(1, 51), count, replace=False).tolist(), reverse=True)
    above = [*sorted(rng.choice(np.arange(1, 96), count - 1, replace=False).tolist(), reverse=True), 0]
    levels = [level(f"l{number}", time_ns=int(rng.integers(1, 10)), energy=int(energy) * most // 50,
                    right=int(rng.integers(0, 10_001)), above_ppm=int(share) * FULL // 100)
              for number, (energy, share) in enumerate(zip(energies, above, strict=True))]
    lasting = bool(rng.integers(2))
    plan = Plan("lasting" if lasting else "thresholds", int(rng.choice([0, rng.integers(1, 10)])),
                int(rng.choice([0, rng.integers(0, FULL // 4)])), int(rng.choice([0, rng.integers(0, 10_001)])),
                int(rng.integers(1, 8)), int(rng.integers(1, 800)))
    battery = int(min(1 << 43, rng.integers(1, 1000) * most))
    fault = int(rng.integers(12))
    if fault == 0 and count > 1:
        levels[0], levels[1] = levels[1], levels[0]
    elif fault == 4 and count > 1:
        levels[0] = replace(levels[0], energy=levels[1].energy)
    elif fault == 1:
        levels[-1] = replace(levels[-1], above_ppm=1)
    elif fault == 2:
        plan, battery = replace(plan, period_us=int(rng.integers(2)) * plan.period_us), 0
    elif fault == 3:
        plan = replace(plan, hysteresis_ppm=FULL)
    return levels, plan, battery


def random_trace(rng: np.random.Generator, steps: int) -> list[tuple[int, int, int]]:
    """Charge, time and deadline of each step: a charge that falls, is read unevenly, and is filled up now and then; a
    time that may wrap at 2^64, or be set back.
    """
    charge, deadline, found = float(FULL), 0, list[tuple[int, int, int]]()
    now = (0, 0, (1 << 63) - 100, (1 << 64) - 100)[rng.integers(4)]
    for _ in range(steps):
        charge -= rng.uniform(0, 0.05) * FULL
        if charge < 0 or rng.random() < 0.03:
            charge = rng.uniform(0, 1) * FULL
        now = (now + int(rng.integers(0, 20)) - (50 if rng.random() < 0.02 else 0)) % (1 << 64)
        if rng.random() < 0.2:
            deadline = int(rng.choice([0, rng.integers(1, 10)]))
        read = int(charge + rng.normal(0, 0.01) * FULL)
        # Gauges may say more than full.
        found.append((max(read, 0) * (3 if rng.random() < 0.1 else 1), now, deadline))
    return found
