"""Winograd layers on the generated Verilog: random graphs, and cycles as the time model says."""

import random

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.benchmarks import LayerBenchmark, conv_graph
from gen.compiler import CompileError, compile_graph
from gen.random_layers import random_graph, random_inputs
from sim import golden
from sim.cycles import estimate
from sim.rtl import Bus, RtlMachine, run_program
from tests.gen.test_winograd import narrow_shifts
from tests.sim.test_rtl_layers import random_bus, random_image

CONFIGS = {
    "narrow": NpuConfig.preset(16, winograd=1),
    "exact": NpuConfig.preset(16, winograd=2, pixel_lanes=1, acc_width=31, acc_depth=512),
    "narrow-4banks": NpuConfig.preset(64, winograd=1, oc_lanes=32, nnz_lanes=4, depthwise=1),
    "exact-tight": NpuConfig(
        oc_lanes=16, ic_lanes=8, nnz_lanes=2, pixel_lanes=2, multiplier_width=18, acc_width=31, input_depth=256,
        acc_depth=64, weight_depth=512, side_depth=512, queue_depth=4, outstanding_reads=4, outstanding_writes=2,
        winograd=2),
}


@pytest.fixture(scope="module", params=CONFIGS)
def machine(request):
    with RtlMachine(CONFIGS[request.param], seed=1) as machine:
        yield machine


def check(machine: RtlMachine, seed: int, *, max_size: int) -> bool:
    """Run a random graph; whether it had a Winograd layer."""
    config, bus = machine.config, random_bus(random.Random(seed))
    graph = random_graph(seed, winograd=0.7, max_size=max_size, max_channels=50)
    shifts = narrow_shifts(graph, config, np.random.default_rng(seed)) if config.winograd == 1 else None
    try:
        program, graph = compile_graph(graph, config, winograd_mode="exact", winograd_shifts=shifts)
    except CompileError as error:
        assert "; build with " in str(error)
        return False
    tensors = random_inputs(graph, seed)
    image = random_image(program, tensors, seed)
    machine.set_bus(bus)
    result = run_program(config, program.code, image, write_start=program.write_start, machine=machine)
    for layer in graph.layers:
        residual = tensors[layer.residual.other] if layer.residual else None
        tensors[layer.output] = golden.run_layer(
            layer, tensors[layer.input], residual, zero_point=graph.tensors[layer.input].zero_point)
        found = program.unpack_tensor(result.image, layer.output)
        np.testing.assert_array_equal(found, tensors[layer.output], f"graph {seed}, {bus}, layer {layer.name}")
    assert result.stats.read_waits == 0, "read data waited at the bus"
    return any(layer.mode == "winograd" for layer in program.layers)


@pytest.mark.parametrize("part", range(2))
def test_random_layers(machine, seed, part):
    assert any([check(machine, seed + number, max_size=14) for number in range(8)])


@pytest.mark.full
@pytest.mark.parametrize("part", range(6))
def test_many_random_layers(machine, seed, part):
    for number in range(12):
        check(machine, seed + number, max_size=24)


@pytest.mark.parametrize("channels, outputs, size", [(16, 16, 14), (24, 8, 9), (40, 24, 13)])
def test_time_model(machine, channels, outputs, size):
    """As fast as the time model says, to 1 %; and what the golden layer makes."""
    layer = LayerBenchmark(name="x", channels=channels, outputs=outputs, size=size, kernel=3)
    graph, config = conv_graph(layer, config=machine.config), machine.config
    shifts = {"x": (2, 1, 0, 2) * 4} if config.winograd == 1 else None
    program, graph = compile_graph(graph, config, winograd_mode="exact", winograd_shifts=shifts)
    assert program.layers[0].mode == "winograd"
    tensors = random_inputs(graph, 1)
    image = random_image(program, tensors, 1)
    machine.set_bus(Bus())
    result = run_program(config, program.code, image, write_start=program.write_start, machine=machine)
    expected = golden.run_layer(graph.layers[0], tensors["input"], zero_point=graph.tensors["input"].zero_point)
    np.testing.assert_array_equal(program.unpack_tensor(result.image, "output"), expected)
    assert abs(estimate(config, program.code).cycles - result.cycles) <= 5 + 0.01 * result.cycles
