"""Random layers that look their results up in tables, on the generated Verilog."""


import pytest

from cores.arch.isa import Opcode
from cores.config import NpuConfig
from sim.rtl import RtlMachine
from tests.compiled import compile_random
from tests.random_layers import random_graph, random_pairs, with_tables
from tests.selection import with_full

from .on_rtl import check_on_rtl

CONFIGS = {
    "16": NpuConfig.preset(16, table=1, input_depth=512),
    "fused": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, input_depth=512, acc_depth=64, weight_depth=512,
                       depthwise=1, local_store=1, table=1),
    "winograd": NpuConfig.preset(16, table=1, winograd=1, gather=1, binary_rows=2, ic_lanes=32, oc_lanes=32),
}


@pytest.fixture(scope="module", params=with_full(CONFIGS, "fused"))
def machine(request):
    with RtlMachine(CONFIGS[request.param], seed=1) as machine:
        yield machine


def check(machine: RtlMachine, seed: int, *, max_size: int) -> int:
    """Run random layers; returns the tables that were loaded."""
    make = random_pairs if machine.config.local_store and seed % 2 else random_graph
    program, graph = compile_random(machine.config, seed, max_size=max_size,
                                    make=lambda seed, **sizes: with_tables(make(seed, **sizes), seed))
    result = check_on_rtl(machine, program, graph, seed, reused=True)
    loads = [i for i in program.instructions if i.opcode is Opcode.STORE_TABLE and i["load"]]
    assert abs(result.counters["cycles"] - result.cycles) <= 4
    return len(loads)


def test_random_layers(machine, seed):
    assert sum(check(machine, seed + number, max_size=16) for number in range(16)) > 8


@pytest.mark.full
@pytest.mark.parametrize("part", range(4))
def test_many_random_layers(machine, seed, part):
    for number in range(12):
        check(machine, seed + 100 * part + number, max_size=24)
