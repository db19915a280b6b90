"""Requantizer lane against the golden model: pixels a cycle or three apart, with one stage and with two."""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import pytest

from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode
from cores.arch.numerics import FIRST_BITS, MIN_SHIFT
from cores.config import NpuConfig
from cores.store.requantizer_lane import RequantizerLane
from sim.golden import requantize
from tests.cores.simulation import Bench, random_fields
from tests.cores.store_chain import random_second_stage, second_result
from tests.cores.store_values import random_channels, random_clip, random_sources

LATENCY = 10
#: Cycles that a pixel's residual and its first stage's result are after it at the multiplier.
RESIDUAL, RESULT = 7, 8
PLAIN = NpuConfig()


class Schedule:
    """What the lane's ports are in every cycle, and what comes out."""

    def __init__(self, lane: RequantizerLane, rng: np.random.Generator):
        self.lane, self.rng = lane, rng
        self.ports: dict[int, dict[str, int]] = defaultdict(dict)
        self.channel: dict[int, dict[str, int]] = defaultdict(dict)
        self.control: dict[int, dict[str, int]] = defaultdict(dict)
        self.outputs: dict[int, int] = {}
        self.negative: dict[int, bool] = {}
        self.cycles = 0

    def source(self, channels) -> int:
        width = self.lane.acc_width
        return int(random_sources(self.rng, (1, 1, 1), channels, width, width)[0, 0, 0])

    def _load(self, cycle: int, channels) -> None:
        bias, multiplier, shift = (int(value[0]) for value in channels)
        for after, field, value in ((1, "bias", bias), (2, "multiplier", multiplier), (4, "shift", shift - MIN_SHIFT)):
            self.channel[cycle + after][field] = value
            self.control[cycle + after][f"load_{'factor' if field == 'multiplier' else field}"] = 1

    def _clip(self, cycle: int, clip: Mapping[str, int]) -> None:
        self.control[cycle + 8]["zero_point"] = clip["zero_point"]
        self.control[cycle + 9] |= {"low": clip["low"], "high": clip["high"]}

    def one_stage(self, cycle: int, channels, *, load: bool, clip: dict[str, int]) -> None:
        """A pixel that sets out in ``cycle``; unless ``load``, its channel's parameters are those of the one before."""
        source = self.source(channels)
        if load:
            self._load(cycle, channels)
        self.ports[cycle + 2]["source"] = source
        self.control[cycle + 2] |= {"factor": 0, "negative_factor": 0}
        self.control[cycle + 4]["subtrahend"] = 0
        self._clip(cycle, clip)
        acc = np.full((1, 1, 1), source)
        value = int(requantize(acc, *channels, clip["zero_point"], clip["low"], clip["high"])[0, 0, 0])
        if self.lane.packs:
            merge = int(self.rng.choice([0, self.rng.integers(256)]))
            self.ports[cycle + 9]["merge"] = merge
            value = (value & 255 | merge) - 256 * ((value & 255 | merge) >> 7)
            limit = 1 << FIRST_BITS
            moved = requantize(acc, *channels, clip["zero_point"], -limit, limit - 1)[0, 0, 0]
            self.negative[cycle + 9] = bool(moved < 0)
        self.outputs[cycle + LATENCY] = value
        self.cycles = cycle + LATENCY + 1

    def two_stages(self, cycle: int, channels, *, clip: dict[str, int], second: Instruction) -> None:
        """A pixel to which a residual is added, or whose factor goes by its sign."""
        source, residual = self.source(channels), int(self.rng.choice([-128, 127, self.rng.integers(-128, 128)]))
        self._load(cycle, channels)
        self.ports[cycle + 2]["source"] = source
        self.control[cycle + 2] |= {"factor": 0, "negative_factor": 0}
        self.control[cycle + 4]["subtrahend"] = 0
        self._clip(cycle, clip)
        leaky = second.opcode == Opcode.STORE_LEAKY
        if leaky:
            of_residual, of_result = (0, 0), (second["multiplier"], second["negative"])
        else:
            of_residual, of_result = (-second["multiplier_b"],) * 2, (second["multiplier_a"],) * 2
            self.control[cycle + RESIDUAL + 4]["subtrahend"] = second["constant"]
        for turn, operand, factors in ((cycle + RESIDUAL, "residual", of_residual),
                                       (cycle + RESULT, "result", of_result)):
            self.control[turn + 1]["clear_bias"] = 1
            self.control[turn + 2] |= {"take_factor": 1, "residual": int(operand == "residual"), "factor": factors[0],
                                       "negative_factor": factors[1]}
            self.ports[turn + 2]["source"] = 0
        self.ports[cycle + RESIDUAL + 2]["residual"] = residual
        self.control[cycle + RESULT + 4] |= {"accumulate": int(not leaky), "subtrahend": 0, "take_shift": 1,
                                             "shift": second["shift"] - MIN_SHIFT}
        self._clip(cycle + RESULT, second.fields)
        first = requantize(np.full((1, 1, 1), source), *channels, clip["zero_point"], clip["low"], clip["high"])
        result = second_result(second, first, np.full((1, 1, 1), residual))
        self.outputs[cycle + RESULT + LATENCY] = int(result[0, 0, 0])
        self.cycles = cycle + RESULT + LATENCY + 1

    async def play(self, ctx, *, cycles: int | None = None) -> None:
        """What is not named is noise, but for what would change held parameters."""
        lane, rng = self.lane, self.rng
        held = dict.fromkeys(("load_bias", "clear_bias", "load_factor", "take_factor", "accumulate", "load_shift",
                              "take_shift"), 0)
        for cycle in range(cycles or self.cycles):
            ctx.set(lane.control, random_fields(rng, lane.control.shape(), **{**held, **self.control[cycle]}))
            ctx.set(lane.channel, random_fields(rng, lane.channel.shape(), **self.channel[cycle]))
            limit = 1 << lane.acc_width - 1
            noise = {"source": rng.integers(-limit, limit), "residual": rng.integers(-128, 128)}
            if lane.packs:
                noise["merge"] = rng.integers(256)
            for port, value in {**noise, **self.ports[cycle]}.items():
                ctx.set(getattr(lane, port), int(value))
            if cycle in self.outputs:
                assert ctx.get(lane.output) == self.outputs[cycle], f"cycle {cycle}"
            if cycle in self.negative:
                assert ctx.get(lane.negative) == self.negative[cycle], f"cycle {cycle}"
            await ctx.tick()


@pytest.mark.parametrize("acc_width, halves, packs", [(24, False, False), (27, True, True), (32, True, False),
                                                      (32, False, False)])
@pytest.mark.parametrize("idle", [0.0, 0.4])
def test_one_stage(acc_width, halves, packs, idle, rng):
    lane = RequantizerLane(acc_width=acc_width, halves=halves, packs=packs)
    bench = Bench(lane, rng=rng)

    async def compare(ctx):
        for count in (8, 300):      # the first ones are broken off by a reset
            schedule = Schedule(lane, rng)
            channels, clip = random_channels(rng, 1, acc_width), random_clip(rng)
            cycle, loaded = 0, False
            for _ in range(count):
                load = not loaded or rng.random() < 0.5
                channels = random_channels(rng, 1, acc_width) if load else channels
                schedule.one_stage(cycle, channels, load=load, clip=clip if rng.random() < 0.5 else random_clip(rng))
                loaded = True
                cycle += 1
                while bench.pauses(idle):
                    cycle += 1
            await schedule.play(ctx, cycles=12 if count == 8 else None)
            await bench.reset(ctx)

    bench.run(compare)


@pytest.mark.parametrize("acc_width, halves", [(24, True), (27, True), (32, False)])
@pytest.mark.parametrize("idle", [0.0, 0.4])
def test_two_stages(acc_width, halves, idle, rng):
    lane = RequantizerLane(acc_width=acc_width, halves=halves)
    bench = Bench(lane, rng=rng)

    async def compare(ctx):
        for count in (4, 150):
            schedule, second = Schedule(lane, rng), random_second_stage(PLAIN, rng)
            cycle = 0
            for _ in range(count):
                schedule.two_stages(cycle, random_channels(rng, 1, acc_width), clip=random_clip(rng, FIRST_BITS),
                                    second=second if rng.random() < 0.5 else random_second_stage(PLAIN, rng))
                cycle += 3
                while bench.pauses(idle):
                    cycle += 3
            await schedule.play(ctx, cycles=15 if count == 4 else None)
            await bench.reset(ctx)

    bench.run(compare)


@pytest.mark.parametrize("acc_width", [23, 33])
def test_accumulator_width(acc_width):
    with pytest.raises(ValueError, match=f"acc_width must be in 24..32, not {acc_width}"):
        RequantizerLane(acc_width=acc_width)
