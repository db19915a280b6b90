"""Second lane against the golden models: a value in every cycle that it can be, whatever comes in others."""

from collections import defaultdict

import numpy as np
import pytest

from cores.arch.isa import Opcode
from cores.arch.numerics import FIRST_BITS, MIN_SHIFT
from cores.config import NpuConfig
from cores.store.stages.second_lane import SecondLane
from tests.cores.simulation import Bench, random_bits
from tests.cores.store_chain import random_second_stage, second_result

LATENCY = 8
#: Cycles that the other operand comes before its value: to be added, to be a factor.
ADDED, FACTOR = 1, 3


def control_of(stage) -> dict[str, int]:
    """The lane's control for a second stage."""
    last = {name: stage[name] for name in ("zero_point", "low", "high")}
    control = {**last, **dict.fromkeys(("adds", "multiplies", "other_factor", "constant"), 0),
               "shift": stage["shift"] - MIN_SHIFT}
    match stage.opcode:
        case Opcode.STORE_LEAKY:
            return {**control, "factor": stage["multiplier"], "negative_factor": stage["negative"]}
        case Opcode.STORE_MULTIPLY:
            return {**control, "multiplies": 1, "other_factor": stage["multiplier"], "constant": -stage["constant"],
                    "factor": 0, "negative_factor": 0}
    return {**control, "adds": 1, "other_factor": stage["multiplier_b"], "constant": stage["constant"],
            "factor": stage["multiplier_a"], "negative_factor": stage["multiplier_a"]}


@pytest.mark.parametrize("apart", [True, False], ids=["apart", "shared"])
@pytest.mark.parametrize("multiplies", [True, False], ids=["product", "plain"])
@pytest.mark.parametrize("idle", [0.0, 0.4])
def test_results(apart, multiplies, idle, rng):
    lane = SecondLane(apart=apart, multiplies=multiplies)
    bench, config = Bench(lane, rng=rng), NpuConfig(product=int(multiplies))
    limit = 1 << FIRST_BITS - 1

    async def compare(ctx):
        for _ in range(12):
            stage = random_second_stage(config, rng)
            before = FACTOR if stage.opcode == Opcode.STORE_MULTIPLY else ADDED
            pace = 1 if apart or stage.opcode == Opcode.STORE_LEAKY else 2
            ports: dict[int, dict[str, int]] = defaultdict(dict)
            wanted, cycle = {}, FACTOR
            for _ in range(60):
                value = int(rng.choice([-limit, limit - 1, rng.integers(-limit, limit)]))
                other = int(rng.choice([-128, 127, rng.integers(-128, 128)]))
                ports[cycle] |= {"value": value, "own": 1}
                ports[cycle - before]["other"] = other
                own, residual = (np.full((1, 1, 1), number) for number in (value, other))
                wanted[cycle + LATENCY] = int(second_result(stage, own, residual)[0, 0, 0])
                cycle += pace
                while bench.pauses(idle):
                    cycle += pace
            ctx.set(lane.control, control_of(stage))
            for now in range(cycle + LATENCY):
                noise = {"value": int(rng.integers(-limit, limit)), "other": random_bits(rng, 8) - 128, "own": 0}
                for name, number in {**noise, **ports[now]}.items():
                    if name != "own" or not apart:
                        ctx.set(getattr(lane, name), number)
                if now in wanted:
                    assert ctx.get(lane.output) == wanted[now], f"cycle {now} of {stage}"
                await ctx.tick()

    bench.run(compare)
