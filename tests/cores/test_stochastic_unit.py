"""Stochastic unit against the golden model: all circuits, lengths from word to word, with and without pauses."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from cores.arch.stochastic import Circuit
from cores.compute.stochastic.stochastic_unit import StochasticUnit
from sim.stochastic.circuits import sums_by_bits
from sim.stochastic.streams import Streams
from tests.cores.simulation import Bench, log_seed
from tests.cores.stochastic_values import random_streams, random_values

#: Circuit, inputs, bits a cycle, rows, pixels, longest streams.
CASES = [
    (Circuit.XNOR_MUX, 4, 8, 1, 1, 512), (Circuit.AND_SEP_OR, 8, 2, 1, 1, 64),
    (Circuit.AND_SEP_COUNTER, 8, 1, 1, 1, 64),
    (Circuit.UGEMM, 8, 1, 1, 1, 64), (Circuit.AND_ACC, 8, 1, 1, 1, 64), (Circuit.AND_LOOP, 4, 4, 1, 2, 128),
    *(pytest.param(circuit, 16, 1, 2, 2, 1024, marks=pytest.mark.full) for circuit in Circuit),
    *(pytest.param(circuit, 32, 8, 1, 1, 1024, marks=pytest.mark.full) for circuit in Circuit if not circuit.serial),
    *(pytest.param(circuit, 32, 1, 1, 1, 1024, marks=pytest.mark.full) for circuit in Circuit),
]


class Schedule:
    """What the unit's ports are in every cycle, noise where they are not looked at, and the sums that come out."""

    def __init__(self, unit: StochasticUnit, rng: np.random.Generator):
        self.unit, self.rng = unit, rng
        self.ports: dict[int, dict[str, Any]] = defaultdict(dict)
        self.sums: dict[int, np.ndarray] = {}
        self.cycle = 0
        self.weights = np.zeros((unit.rows, unit.inputs), np.int8)

    def word(self, streams: Streams, *, pause: int) -> None:
        unit, rng = self.unit, self.rng
        pixels = random_values(rng, (unit.pixel_lanes, unit.inputs))
        load = not self.cycle or rng.random() < 0.5
        if load:
            self.weights = random_values(rng, self.weights.shape)
        self.ports[self.cycle] |= {"start": 1, "length": streams.length.bit_length() - 1,
                                   "made": streams.made.bit_length() - 1}
        self.ports[self.cycle + 1] |= {"pixels": pixels.tolist(), "load": int(load)}
        for cycle in range(1, 4 if unit.circuit == Circuit.UGEMM else 2):
            self.ports[self.cycle + cycle] |= {"weights": self.weights.tolist()}
        due = self.cycle + unit.latency(unit.circuit, inputs=unit.inputs, bits=unit.bits, made=streams.made)
        self.sums[due] = sums_by_bits(unit.circuit, pixels[:, None], self.weights[None], streams).ravel()
        self.cycle += streams.made // unit.bits + pause

    def noise(self) -> dict[str, Any]:
        shape = self.unit.pixel_lanes, self.unit.inputs
        return {"start": 0, "length": int(self.rng.integers(11)), "made": int(self.rng.integers(11)),
                "pixels": self.rng.integers(-128, 128, shape).tolist(), "load": int(self.rng.integers(2)),
                "weights": self.rng.integers(-128, 128, self.weights.shape).tolist()}


@pytest.mark.slow
@pytest.mark.parametrize("circuit, inputs, bits, rows, pixels, longest", CASES)
def test_sums(circuit, inputs, bits, rows, pixels, longest):
    """Words follow each other without a cycle between them, or with some; now and then with new weights."""
    rng = np.random.default_rng(log_seed())
    unit = StochasticUnit(circuit=circuit, inputs=inputs, rows=rows, pixels=pixels, bits=bits)
    schedule, bench = Schedule(unit, rng), Bench(unit)
    for number in range(8 if bits > 1 else 36):
        streams = Streams(longest) if number == 2 else random_streams(rng, most=32)
        schedule.word(streams, pause=int(rng.integers(1, 9)) if rng.random() < 0.4 else 0)

    async def run(ctx) -> None:
        while schedule.sums:
            valid, expected = ctx.get(unit.valid), schedule.sums.pop(bench.cycle, None)
            assert valid == (expected is not None), f"cycle {bench.cycle}"
            if expected is not None:
                sums = ctx.get(unit.sums)
                assert [sums[number] for number in range(rows * pixels)] == expected.tolist()
            chosen = schedule.ports.pop(bench.cycle, {})
            # Noise takes the simulator longer than all else: now and then, and after what was looked at.
            ports = {**schedule.noise(), **chosen} if chosen or rng.random() < 0.1 else {"start": 0}
            for name, value in ports.items():
                ctx.set(getattr(unit, name), value)
            await ctx.tick()

    bench.run(run)


@pytest.mark.parametrize("parameters, message", [
    ({"rows": 0}, "rows must be at least 1, not 0"),
    ({"pixels": 0}, "pixels must be at least 1, not 0"),
    ({"inputs": 6}, "inputs must be 4, 8, 16 or 32, not 6"),
    ({"bits": 3}, "bits must be 1, 2, 4 or 8, not 3"),
    ({"bits": 2, "circuit": Circuit.AND_ACC}, "bits must be 1 with and-acc"),
])
def test_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        StochasticUnit(**{"circuit": Circuit.AND_LOOP, "inputs": 16, "rows": 1, "pixels": 1, **parameters})
