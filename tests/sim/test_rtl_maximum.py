"""Maxima of 2x2 in the stores before them, on the generated Verilog: bytes, and cycles."""

from dataclasses import replace

import pytest

from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.ir.errors import CompileError
from gen.options import CompileOptions
from sim.cycles import estimate
from sim.rtl import Bus, RtlMachine
from tests.random_cases import MACHINES
from tests.random_maxima import random_maxima

from .on_rtl import UNITS, check_on_rtl, machines

CONFIGS = {
    "units": replace(UNITS, maximum=1),
    "spread": replace(MACHINES["windows"], maximum=1, store_multipliers=2, table=1),
    "tiles": replace(MACHINES["exact"], maximum=1),
    "one pixel": replace(MACHINES["one pixel"], maximum=1),
    "signs": replace(MACHINES["binary"], maximum=1, winograd=1),
}

machine = machines(CONFIGS, "tiles", "one pixel", "signs")


def check(machine: RtlMachine, seed: int, *, max_size: int, layers: int = 2) -> int:
    """Random layers on a random bus, and on an ideal one with the time model's cycles. Returns how many take maxima."""
    config: NpuConfig = machine.config
    tiles = 0.6 if config.winograd and seed % 2 else None
    graph = random_maxima(seed, layers=layers, max_size=max_size, winograd=tiles, tables=0.4 * config.table)
    try:
        program, graph = compile_graph(graph, config, CompileOptions(
            keep_all=True, winograd="exact" if tiles and config.winograd == 2 else "auto"))
    except CompileError as error:
        assert error.code == "no-tile"
        return 0
    check_on_rtl(machine, program, graph, seed)
    result = check_on_rtl(machine, program, graph, seed, bus=Bus())
    assert estimate(config, program.code).cycles == pytest.approx(result.counters["cycles"], rel=0.005, abs=16)
    return sum(layer.windows != (1, 1) for layer in graph.layers)


def test_random_layers(machine, seed):
    assert sum(check(machine, seed + number, max_size=18) for number in range(10)) > 3


@pytest.mark.full
@pytest.mark.parametrize("part", range(4))
def test_many_random_layers(machine, seed, part):
    for number in range(12):
        check(machine, seed + 100 * (part + 1) + number, max_size=26, layers=3)
