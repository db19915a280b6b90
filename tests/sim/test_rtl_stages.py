"""Second stages on multipliers of their own, on the generated Verilog: bytes, and cycles of each."""

from dataclasses import replace

import numpy as np
import pytest

from cores.arch.isa import Queue
from cores.config import NpuConfig
from gen.ir.epilogue.add import Add
from gen.ir.epilogue.base import StoreOp
from gen.ir.epilogue.leaky import Leaky
from gen.ir.epilogue.multiply import Multiply
from gen.ir.graph import Graph, Pool
from gen.ir.tensor import Tensor
from gen.onnx.quant_scales import same
from sim.cycles import estimate
from sim.rtl import Bus, RtlMachine
from tests.compiled import compile_kept, compile_random
from tests.random_layers import random_graph, with_products

from .on_rtl import UNITS, check_on_rtl, machines

CONFIGS = {
    "three": replace(UNITS, store_multipliers=3),
    "two": replace(UNITS, store_multipliers=2),
    "tiles": NpuConfig.preset(16, winograd=1, gather=1, binary_rows=2, ic_lanes=32, oc_lanes=32, store_multipliers=2),
}
#: Channels, rows and columns of a tensor: two blocks or more, so that parameters follow a block.
SHAPE = (64, 6, 9)

machine = machines(CONFIGS, "tiles")


def copy(second: StoreOp, other: tuple[int, int, int]) -> Graph:
    """A copy with a second stage; ``other``: shape of the other operand."""
    x = Tensor("x", SHAPE, 1.0, 0)
    layer = Pool("copy", "x", "y", maximum=False, pad_value=0, requantize=same(x, SHAPE[0]), epilogue=(second,))
    tensors = {"x": x, "y": replace(x, name="y"), "other": replace(x, name="other", shape=other)}
    inputs = {name: (name, ()) for name in ("x", "other") if name == "x" or layer.others}
    return Graph("stages", {name: tensor for name, tensor in tensors.items() if name == "y" or name in inputs}, [layer],
                 inputs, {"y": ("y", ())})


def check_stores(machine: RtlMachine, graph: Graph, seed: int) -> None:
    """Bytes on any bus; on an ideal one the time model has the cycles, and what the store engine spends them on."""
    program, graph = compile_kept(graph, machine.config)
    check_on_rtl(machine, program, graph, seed)
    result = check_on_rtl(machine, program, graph, seed, bus=Bus())
    timing = estimate(machine.config, program.code)
    assert timing.cycles == result.counters["cycles"]
    store = Queue.STORE - 1
    np.testing.assert_array_equal(timing.counts[store], result.trace.counts[store])


def test_each_stage_to_the_cycle(machine, seed):
    """Of a tensor that is added, one that is a factor, a vector of either kind, and values with STORE_LEAKY."""
    middle = replace(Tensor("x", SHAPE, 1.0, 0), name="middle")
    last = {"middle": middle, "shift": 20, "zero_point": 0, "low": -128, "high": 127}
    vector = (SHAPE[0], 1, 1)
    adds = Add(other="other", multiplier_a=70000, multiplier_b=50000, constant=3, **last)
    times = Multiply(other="other", multiplier=20000, constant=0, **last)
    check_stores(machine, copy(adds, SHAPE), seed)
    check_stores(machine, copy(Leaky(multiplier=1 << 16, negative=9000, **last), SHAPE), seed)
    if machine.config.product:
        for second, other in ((times, SHAPE), (times, vector), (adds, vector)):
            check_stores(machine, copy(second, other), seed)


def test_random_layers(machine, seed):
    """On random buses with stalls; cycles on an ideal one."""
    for number in range(10):
        check(machine, seed + number, max_size=16)


def check(machine: RtlMachine, seed: int, *, max_size: int) -> None:
    """Random layers, every second time with products in the place of sums."""
    def make(seed: int, **sizes: int) -> Graph:
        graph = random_graph(seed, **sizes)
        return with_products(graph, seed) if machine.config.product and seed % 2 else graph

    program, graph = compile_random(machine.config, seed, max_size=max_size, make=make)
    check_on_rtl(machine, program, graph, seed, reused=True)
    result = check_on_rtl(machine, program, graph, seed, bus=Bus(), reused=True)
    assert estimate(machine.config, program.code).cycles == pytest.approx(result.counters["cycles"], rel=0.005, abs=16)


@pytest.mark.full
@pytest.mark.parametrize("part", range(4))
def test_many_random_layers(machine, seed, part):
    for number in range(12):
        check(machine, seed + 100 * part + number, max_size=24)
