"""Random layers on the generated Verilog: every value of every tensor equals the golden layers'."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.geometry import CompileError
from gen.ir import Graph
from gen.program import Program
from gen.random_layers import random_graph, random_inputs
from sim import golden
from sim.rtl import Bus, RtlMachine, run_program
from sim.rtl.machine import WriteOrder

#: One without and one with a choice of blocks in a set of outputs, one with a pixel at a time, narrow selection and as
#: little memory as can be built.
CONFIGS = {
    "16": NpuConfig.preset(16),
    "64": NpuConfig.preset(64, oc_lanes=32, nnz_lanes=1),
    "32-tight": NpuConfig(
        oc_lanes=16, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, select_fanin=4, acc_width=28, multiplier_width=18,
        input_depth=256, acc_depth=64, weight_depth=512, side_depth=512, queue_depth=4, outstanding_reads=4,
        outstanding_writes=2, address_width=32,
    ),
}


@pytest.fixture(scope="module", params=CONFIGS)
def machine(request):
    with RtlMachine(CONFIGS[request.param], seed=1) as machine:
        yield machine


def random_bus(chance: random.Random) -> Bus:
    if chance.random() < 0.4:
        return Bus()
    return Bus(latency=chance.randint(1, 120), bandwidth=chance.choice([1.0, 0.6, 0.25]),
               stall_probability=chance.choice([0.0, 0.1, 0.5]), write_order=chance.choice(list(WriteOrder)))


def compile_random(config: NpuConfig, seed: int, *, max_size: int,
                   make: Callable[..., Graph] = random_graph) -> tuple[Program, Graph]:
    """A random program; a graph whose smallest tile is too large for the smallest memories gives way to another."""
    for attempt in range(4):
        chance = random.Random(seed + 1000 * attempt)
        graph = make(seed + 1000 * attempt, max_size=max_size)
        try:
            return compile_graph(graph, config, density=chance.choice([None, None, 0.25, 0.5]))
        except CompileError as error:
            assert "; build with " in str(error)
    raise AssertionError("the compiler refuses one graph after the other")


def random_image(program: Program, tensors: dict[str, np.ndarray], seed: int) -> np.ndarray:
    """The data region with ``tensors`` filled in and noise where results will be."""
    image = np.random.default_rng(seed).integers(0, 256, program.data_beats * program.config.beat_bytes, np.uint8)
    image[:len(program.constants)] = np.frombuffer(program.constants, np.uint8)
    for name, values in tensors.items():
        program.pack_input(image, name, values)
    return image


def check(machine: RtlMachine, seed: int, *, max_size: int, make: Callable[..., Graph] = random_graph) -> Program:
    """Run a random program on a random bus; returns it."""
    config, bus = machine.config, random_bus(random.Random(seed))
    program, graph = compile_random(config, seed, max_size=max_size, make=make)
    tensors = random_inputs(graph, seed)
    image = random_image(program, tensors, seed)
    machine.set_bus(bus)
    result = run_program(config, program.code, image, write_start=program.write_start, machine=machine)
    what = f"graph {seed}, {bus}"
    for layer in graph.layers:
        residual = tensors[layer.residual.other] if layer.residual else None
        tensors[layer.output] = golden.run_layer(
            layer, tensors[layer.input], residual, zero_point=graph.tensors[layer.input].zero_point)
        if layer.output not in program.tensors:
            continue    # handed on inside the machine
        found = program.unpack_tensor(result.image, layer.output)
        np.testing.assert_array_equal(found, tensors[layer.output], f"{what}, layer {layer.name}")
    trace = result.trace
    assert abs(result.cycles - result.counters["cycles"]) <= 4, what
    assert result.counters["instructions"] == len(program.instructions), what
    assert result.counters["read_beats"] == result.stats.read_beats, what
    assert result.counters["write_beats"] == result.stats.write_beats, what
    assert trace.counts.sum(axis=(1, 2)).max() <= result.cycles, what
    assert result.stats.read_waits == 0, f"{what}: read data waited at the bus"
    return program


@pytest.mark.parametrize("number", range(14))
def test_random_layers(machine, seed, number):
    check(machine, seed + number, max_size=16)


@pytest.mark.full
@pytest.mark.parametrize("part", range(10))
def test_many_random_layers(machine, seed, part):
    for number in range(12):
        check(machine, seed + number, max_size=24)
