"""Random layers that look their results up in tables, on the generated Verilog."""


from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from cores.arch.isa import Opcode
from cores.config import NpuConfig
from gen.ir.epilogue.table import Table
from gen.ir.graph import Graph, Pool
from gen.ir.tensor import Tensor
from gen.onnx.quant_scales import same
from sim.cycles import estimate
from sim.rtl import Bus, RtlMachine
from tests.compiled import compile_kept, compile_random
from tests.random_layers import random_graph, random_pairs, with_tables

from .on_rtl import UNITS, check_on_rtl, machines

CONFIGS = {
    "16": UNITS,
    "fused": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, input_depth=512, acc_depth=64, weight_depth=512,
                       depthwise=1, local_store=1, table=1),
    "winograd": NpuConfig.preset(16, table=1, winograd=1, gather=1, binary_rows=2, ic_lanes=32, oc_lanes=32),
}


X = Tensor("x", (8, 6, 9), 1.0, 0)
Y = Tensor("middle", (8, 6, 9), 1.0, 0)

machine = machines(CONFIGS, "fused", "winograd")


def check(machine: RtlMachine, seed: int, *, max_size: int) -> int:
    """Run random layers; returns the tables that were loaded."""
    make = random_pairs if machine.config.local_store and seed % 2 else random_graph
    program, graph = compile_random(machine.config, seed, max_size=max_size,
                                    make=lambda seed, **sizes: with_tables(make(seed, **sizes), seed))
    check_on_rtl(machine, program, graph, seed, reused=True)
    return sum(i.opcode is Opcode.STORE_TABLE and i["load"] for i in program.instructions)


def test_random_layers(machine, seed):
    assert sum(check(machine, seed + number, max_size=16) for number in range(16)) > 8


def test_time_model(machine, seed):
    """As near as elsewhere, and to the cycle what one more STORE_TABLE that loads takes."""
    config, cycles = machine.config, []
    layer = Pool("copy", "x", "y", maximum=False, pad_value=0, requantize=same(X, 8))
    tables = [Table(Y, np.roll(np.arange(-128, 128), turn).astype(np.int8)) for turn in (0, 5)]
    for chosen in ([(), ()], [tables[:1], ()], [tables[:1], tables[1:]]):
        names = ("x", "y", "z")
        layers = [replace(layer, name=f"to {target}", input=source, output=target, epilogue=tuple(table))
                  for (source, target), table in zip(pairwise(names), chosen, strict=True)]
        graph = Graph("copies", {name: replace(X, name=name) for name in names}, layers, {"x": ("x", ())},
                      {"z": ("z", ())})
        program, graph = compile_kept(graph, config)
        result = check_on_rtl(machine, program, graph, seed, bus=Bus())
        cycles.append((result.counters["cycles"], estimate(config, program.code).cycles))
    for measured, modelled in cycles:
        assert modelled == pytest.approx(measured, rel=0.02)
    measured, modelled = np.subtract(cycles[2], cycles[1])
    assert measured == modelled > 0, cycles


@pytest.mark.full
@pytest.mark.parametrize("part", range(4))
def test_many_random_layers(machine, seed, part):
    for number in range(12):
        check(machine, seed + 100 * part + number, max_size=24)
