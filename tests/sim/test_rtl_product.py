"""Random layers that multiply their results with another tensor, or a vector, on the generated Verilog."""

from dataclasses import replace

import pytest

from cores.arch.isa import Opcode
from cores.config import NpuConfig
from gen.ir.epilogue.multiply import Multiply
from gen.ir.graph import Graph, Pool
from gen.ir.tensor import Tensor
from gen.onnx.quant_scales import same
from sim.cycles import estimate
from sim.rtl import Bus, RtlMachine
from tests.compiled import compile_kept, compile_random
from tests.random_layers import random_graph, random_pairs, with_products

from .on_rtl import UNITS, check_on_rtl, machines

CONFIGS = {
    "16": UNITS,
    "fused": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, input_depth=512, acc_depth=64, weight_depth=512,
                       depthwise=1, local_store=1, product=1),
    "winograd": NpuConfig.preset(16, product=1, winograd=1, gather=1, binary_rows=2, ic_lanes=32, oc_lanes=32),
}

machine = machines(CONFIGS, "fused", "winograd")


def check(machine: RtlMachine, seed: int, *, max_size: int) -> list[tuple[int, int]]:
    """Run random layers; returns ``product`` and ``broadcast`` of each second stage."""
    make = random_pairs if machine.config.local_store and seed % 2 else random_graph
    program, graph = compile_random(machine.config, seed, max_size=max_size,
                                    make=lambda seed, **sizes: with_products(make(seed, **sizes), seed))
    check_on_rtl(machine, program, graph, seed, reused=True)
    result = check_on_rtl(machine, program, graph, seed, bus=Bus(), reused=True)
    assert estimate(machine.config, program.code).cycles == pytest.approx(result.counters["cycles"], rel=0.02, abs=60)
    return [(i.opcode, i["broadcast"]) for i in program.instructions if i.opcode is Opcode.STORE_MULTIPLY]


def test_random_layers(machine, seed):
    wanted, kinds = {(Opcode.STORE_MULTIPLY, 0), (Opcode.STORE_MULTIPLY, 1)}, set()
    for number in range(40):    # ten, and further ones until both have come
        if number >= 10 and wanted <= kinds:
            break
        kinds |= set(check(machine, seed + number, max_size=16))
    assert wanted <= kinds


def test_time_model(machine, seed):
    """Of a copy that multiplies with a vector, and with a tensor, to the cycle."""
    config, shape = machine.config, (12, 6, 9)
    x = Tensor("x", shape, 1.0, 0)
    times = Multiply(middle=replace(x, name="middle"), other="other", multiplier=20000, constant=0, shift=20,
                     zero_point=0, low=-128, high=127)
    copy = Pool("copy", "x", "y", maximum=False, pad_value=0, requantize=same(x, 12), epilogue=(times,))
    for size in ((12, 1, 1), shape):
        tensors = {"x": x, "y": replace(x, name="y"), "other": replace(x, name="other", shape=size)}
        graph = Graph("product", tensors, [copy], {name: (name, ()) for name in ("x", "other")}, {"y": ("y", ())})
        program, graph = compile_kept(graph, config)
        result = check_on_rtl(machine, program, graph, seed, bus=Bus())
        assert estimate(config, program.code).cycles == result.counters["cycles"]


@pytest.mark.full
@pytest.mark.parametrize("part", range(4))
def test_many_random_layers(machine, seed, part):
    for number in range(12):
        check(machine, seed + 100 * part + number, max_size=24)
