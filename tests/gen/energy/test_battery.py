"""The battery: runs counted one by one, and the four strategies by hand."""

import csv
import dataclasses
import io

import numpy as np
import pytest

from gen.energy.battery import SWITCH_CYCLES, Setting, discharge
from gen.energy.levels import CORTEX_A7, Level, read_levels
from gen.energy.strategies import PUBLISHED, Plan, strategies
from gen.energy.trace import plot, trace_csv
from gen.files.figure import drawn


def setting(above: float, volts: float, length: int, cycles: int, mhz: float = 100) -> Setting:
    return Setting(above, Level(name=f"v{volts:.3f}", mhz=mhz, volts=volts), length, cycles, 0.9, 1.0)


def counted(budget: float, settings: list[Setting]) -> list[int]:
    """Inference by inference."""
    energy, number, counts = budget, 0, [0] * len(settings)
    while True:
        while number + 1 < len(settings) and energy <= settings[number].above * budget:
            number += 1
            one = settings[number]
            if energy > 0:
                energy -= one.switch(settings[number - 1]) * one.per_cycle * one.level.volts ** 2
        if energy < settings[number].energy:
            # Where there is not enough left at a level, a lower one may still run.
            if number + 1 == len(settings):
                return counts
            number += 1
            one = settings[number]
            energy -= one.switch(settings[number - 1]) * one.per_cycle * one.level.volts ** 2
            continue
        energy -= settings[number].energy
        counts[number] += 1


def test_against_one_by_one(rng: np.random.Generator):
    for _ in range(50):
        count = int(rng.integers(1, 5))
        above = [*sorted(rng.uniform(0.05, 0.95, count - 1).tolist(), reverse=True), 0.0]
        settings = [setting(place, float(rng.uniform(0.7, 1.3)), int(rng.choice([8, 16])),
                            int(rng.integers(1, 60) * 10 + 1)) for place in above]
        budget = float(rng.uniform(300, 20000))
        found = discharge(budget, settings)
        assert [phase.inferences for phase in found.phases] == counted(budget, settings)
        assert all(a.left >= b.charge for a, b in zip(found.phases, found.phases[1:], strict=False))
        assert found.phases[-1].left >= 0


def test_exact_multiples_are_whole():
    (phase,) = discharge(0.1 * 3000, [setting(0, 1.0, 8, 3000)]).phases[:1]
    assert phase.inferences == 0
    one = dataclasses.replace(setting(0, 1.0, 8, 3000), per_cycle=0.1)
    assert discharge(one.energy * 1_000_000, [one]).inferences == 1_000_000


def test_a_switch_costs_its_cycles():
    fast, slow = setting(0.5, 1.0, 16, 100), setting(0, 1.0, 8, 50)
    found = discharge(1000, [fast, slow])
    assert [phase.inferences for phase in found.phases] == [5, 9]       # 500 - 3 are not enough for ten
    assert found.phases[1].charge == pytest.approx(0.5 - SWITCH_CYCLES / 1000)
    same = discharge(1000, [fast, dataclasses.replace(fast, above=0.0)])
    assert same.inferences == 10 and same.phases[1].begin == same.phases[0].end


@pytest.mark.parametrize("above", [[], [0.5], [0.5, 0.5, 0], [0, 0.5]])
def test_settings_fall(above: list[float]):
    with pytest.raises(ValueError, match="by falling charge"):
        discharge(1, [setting(place, 1.0, 8, 1) for place in above])


def plan(**changed: object) -> Plan:
    parts = dict(levels=read_levels(CORTEX_A7), lengths=(64, 32, 16), cycles={16: 400, 32: 800, 64: 1600},
                 accuracy={16: 0.9, 32: 0.94, 64: 0.96}, per_cycle=2.0, bounds=(0.95, 0.9, 0.91), deadline=None,
                 inferences=300_000)
    return Plan(**{**parts, **changed})  # type: ignore[arg-type]


def test_four_ways_by_hand():
    """A third of the charge at each level: gains are means of the levels' own."""
    found = {strategy.name: strategy for strategy in strategies(plan())}
    volts = (1 / 1.0, (1.24 / 1.06625) ** 2, (1.24 / 0.9925) ** 2)
    assert list(found) == list(PUBLISHED)
    assert found["fixed"].discharge.inferences == 300_000
    expected = {"fixed": 1.0, "levels": sum(volts) / 3, "lengths": (1 + 2 + 4) / 3,
                "both": (volts[0] + 2 * volts[1] + 4 * volts[2]) / 3}
    for name, gain in expected.items():
        assert found[name].gain == pytest.approx(gain, rel=1e-4), name
    # The deadline is what the fixed strategy takes: slower levels with streams as long miss it.
    assert [one.in_time for one in found["levels"].verdicts] == [True, False, False]
    assert all(one.in_time for name in ("fixed", "lengths", "both") for one in found[name].verdicts)
    assert [one.accurate for one in found["both"].verdicts] == [True, True, False]
    parts = (volts[0], 2 * volts[1], 4 * volts[2])
    mean = sum(part * right for part, right in zip(parts, (0.96, 0.94, 0.9), strict=True)) / sum(parts)
    assert found["both"].discharge.accuracy == pytest.approx(mean, rel=1e-4)


def test_a_deadline_of_ones_own():
    limit = 800 / 800e6
    found = {strategy.name: [one.in_time for one in strategy.verdicts] for strategy in strategies(plan(deadline=limit))}
    assert found["both"] == [False, True, True] and found["fixed"] == [False] * 3


@pytest.mark.parametrize("name", ["lengths", "bounds"])
def test_one_for_each_level(name: str):
    with pytest.raises(ValueError, match=f"{name} must be one for each of 3 levels, not 2"):
        plan(**{name: (16, 16)})


def test_traces():
    found = strategies(plan())
    rows = list(csv.DictReader(io.StringIO(trace_csv(found))))
    assert len(rows) == 4 * 3 * 2
    mine = [row for row in rows if row["strategy"] == "both"]
    assert int(mine[-1]["inferences"]) == found[-1].discharge.inferences
    assert [row["length"] for row in mine] == ["64", "64", "32", "32", "16", "16"]
    assert all(float(a["charge"]) >= float(b["charge"]) and float(a["seconds"]) <= float(b["seconds"])
               for a, b in zip(mine, mine[1:], strict=False))
    assert drawn(plot(found, ["$a_b"], {"l6": 0.67})).startswith(b"\x89PNG")
