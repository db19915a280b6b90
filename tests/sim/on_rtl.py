"""Compiled graphs on the generated Verilog."""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.ir.graph import Graph
from gen.program.program import Program
from sim.cycles import estimate
from sim.rtl import Bus, RtlMachine, run_program
from sim.rtl.machine import WriteOrder
from sim.rtl.run import RtlResult
from tests.compiled import check_tensors, compile_kept, golden_tensors, random_image
from tests.every_order import soil
from tests.random_layers import random_inputs
from tests.selection import with_full

#: A small machine of several units for the tests of each, as it takes ten seconds to compile.
UNITS = NpuConfig.preset(16, gather=1, product=1, table=1, input_depth=512)
#: The same for those of transformers. Of one value a step no mask of values would be needed.
ATTENTION = NpuConfig.preset(16, nnz_lanes=2, turn=1, rows=16, product=1, table=1, input_depth=512)


def machines(configs: Mapping[str, NpuConfig], *full: str) -> Callable[..., Any]:
    """The fixture ``machine`` of a module: the Verilog of each of these in turn; of those in ``full`` with `--full`."""
    @pytest.fixture(scope="module", params=with_full(configs, *full))
    def machine(request: pytest.FixtureRequest) -> Iterator[RtlMachine]:
        with RtlMachine(configs[request.param], seed=1) as machine:
            yield machine

    return machine


def random_bus(chance: random.Random) -> Bus:
    if chance.random() < 0.4:
        return Bus()
    return Bus(latency=chance.randint(1, 120), bandwidth=chance.choice([1.0, 0.6, 0.25]),
               stall_probability=chance.choice([0.0, 0.1, 0.5]), write_order=chance.choice(list(WriteOrder)))


def check_on_rtl(machine: RtlMachine, program: Program, graph: Graph, seed: int, *,
                 bus: Bus | None = None, reused: bool = False) -> RtlResult:
    """Run a program on random inputs, with noise in all padding: every tensor is the golden layers', every counter what
    the memory saw.

    ``graph`` is what the program computes; without ``bus`` it is a random one; ``reused`` as in `check_tensors`.
    """
    bus = bus or random_bus(random.Random(seed))
    inputs = random_inputs(graph, seed)
    machine.set_bus(bus)
    image = soil(program, random_image(program, inputs, seed), seed)
    result = run_program(machine, program.code, image, write_start=program.write_start)
    what = f"graph {seed}, {bus}"
    check_tensors(program, graph, result.image, golden_tensors(graph, inputs), what, reused=reused)
    assert abs(result.cycles - result.counters["cycles"]) <= 4, what
    if not machine.config.cycles_only:
        assert result.counters["instructions"] == len(program.instructions), what
        assert result.counters["read_beats"] == result.stats.read_beats, what
        assert result.counters["write_beats"] == result.stats.write_beats, what
    assert result.trace.counts.sum(axis=(1, 2)).max() <= result.cycles, what
    assert result.stats.read_waits == 0, f"{what}: read data waited at the bus"
    return result


def check_bytes_and_cycles(machine: RtlMachine, graph: Graph, seed: int, *, slack: int) -> None:
    """`check_on_rtl` of a graph on a random bus, and on an ideal one, where the time model is off by no more than
    0.5 % or ``slack`` cycles."""
    program, graph = compile_kept(graph, machine.config)
    check_on_rtl(machine, program, graph, seed)
    result = check_on_rtl(machine, program, graph, seed, bus=Bus())
    assert estimate(machine.config, program.code).cycles == pytest.approx(
        result.counters["cycles"], rel=0.005, abs=slack)


def check_each_instruction(machine: RtlMachine, graph: Graph, seed: int) -> None:
    """On an ideal bus the time model has every engine's cycles of each instruction, by what they are spent on."""
    program, graph = compile_kept(graph, machine.config)
    result = check_on_rtl(machine, program, graph, seed, bus=Bus())
    timing = estimate(machine.config, program.code)
    assert timing.cycles == result.counters["cycles"]
    np.testing.assert_array_equal(timing.counts, result.trace.counts)
