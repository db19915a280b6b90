"""Winograd layers on the generated Verilog: random graphs, and cycles as the time model says."""

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.bench.layers import LayerBenchmark, conv_graph
from gen.ir.errors import CompileError
from sim.cycles import estimate
from sim.rtl import Bus, RtlMachine
from tests.compiled import compile_kept
from tests.gen.test_winograd import narrow_shifts, wherever
from tests.random_layers import random_graph
from tests.selection import with_full

from .on_rtl import check_on_rtl, machines

CONFIGS = {
    "narrow": NpuConfig.preset(16, winograd=1),
    "exact": NpuConfig.preset(16, winograd=2, pixel_lanes=1, acc_width=31, acc_depth=512),
    "narrow-4banks": NpuConfig.preset(64, winograd=1, oc_lanes=32, nnz_lanes=4, depthwise=1),
    "exact-tight": NpuConfig(
        oc_lanes=16, ic_lanes=8, nnz_lanes=2, pixel_lanes=2, multiplier_width=18, acc_width=31, input_depth=256,
        acc_depth=64, weight_depth=512, side_depth=512, queue_depth=4, outstanding_reads=4, outstanding_writes=2,
        winograd=2),
}

machine = machines(CONFIGS, "narrow-4banks", "exact-tight")


def check(machine: RtlMachine, seed: int, *, max_size: int) -> bool:
    """Run a random graph; whether it had a Winograd layer."""
    config = machine.config
    graph = random_graph(seed, winograd=0.7, max_size=max_size, max_channels=50)
    shifts = narrow_shifts(graph, config, np.random.default_rng(seed)) if config.winograd == 1 else {}
    try:
        program, graph = compile_kept(graph, config, winograd=wherever(config), winograd_shifts=shifts)
    except CompileError as error:
        assert error.code == "no-tile"
        return False
    check_on_rtl(machine, program, graph, seed)
    return any(layer.mode == "winograd" for layer in program.layers)


@pytest.mark.parametrize("part", with_full(range(2), 1))
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
    shifts = {"x": (2, 1, 0, 2) * 4} if config.winograd == 1 else {}
    program, graph = compile_kept(graph, config, winograd=wherever(config), winograd_shifts=shifts)
    assert program.layers[0].mode == "winograd"
    result = check_on_rtl(machine, program, graph, 1, bus=Bus())
    assert abs(estimate(config, program.code).cycles - result.cycles) <= 5 + 0.02 * result.cycles
