"""Products of two activations on the generated Verilog."""

import random

import pytest

from cores.config import NpuConfig
from sim.rtl import RtlMachine, run_program
from tests.compiled import check_tensors, compile_kept, golden_tensors, random_image
from tests.every_order import soil
from tests.random_layers import random_inputs
from tests.random_products import product_graph, random_products
from tests.selection import with_full

from .on_rtl import ATTENTION, UNITS, check_bytes_and_cycles, random_bus

CONFIGS = {
    "turned": ATTENTION,
    "gathered": UNITS,
    "beside others": NpuConfig(oc_lanes=32, ic_lanes=16, nnz_lanes=4, turn=1, gather=1, winograd=1, depthwise=1,
                               local_store=1, input_depth=512, weight_depth=512),
}


@pytest.fixture(scope="module", params=with_full(CONFIGS, "gathered", "beside others"))
def machine(request):
    with RtlMachine(CONFIGS[request.param], seed=1) as machine:
        yield machine


@pytest.mark.parametrize("sizes", [
    dict(reduced=20, rows=197, size=(1, 9), zero_points=(3, -7)),
    dict(reduced=20, rows=197, size=(33, 1)),
    dict(reduced=197, rows=20, size=(1, 9), zero_points=(-128, 5), by_channels=True),
], ids=("scores", "symmetric", "values"))
def test_directed(machine, seed, sizes):
    check_bytes_and_cycles(machine, product_graph(**sizes), seed, slack=60)


@pytest.mark.parametrize("sizes", [
    dict(reduced=20, rows=49, outputs=64), dict(reduced=49, rows=20, by_channels=True),
], ids=("scores", "values"))
def test_parts(machine, seed, sizes):
    if machine.config.turn:
        graph = product_graph(**sizes, size=(7, 7), zero_points=(-128, 5), parts=3)
        check_bytes_and_cycles(machine, graph, seed, slack=60)


def test_garbage_in_padding(machine, seed):
    program, graph = compile_kept(product_graph(reduced=20, rows=21, size=(1, 9), zero_points=(3, -7)), machine.config)
    inputs = random_inputs(graph, seed)
    machine.set_bus(random_bus(random.Random(seed)))
    image = soil(program, random_image(program, inputs, seed), seed)
    result = run_program(machine, program.code, image, write_start=program.write_start)
    check_tensors(program, graph, result.image, golden_tensors(graph, inputs), f"seed {seed}")


def test_random(machine, seed):
    for number in range(seed, seed + 6):
        made = random_products(number, largest=30, parts=4 if machine.config.turn else 1)
        check_bytes_and_cycles(machine, made, number, slack=60)


@pytest.mark.full
def test_many_random(machine, seed):
    for number in range(seed, seed + 40):
        made = random_products(number, largest=50, parts=4 if machine.config.turn else 1)
        check_bytes_and_cycles(machine, made, number, slack=60)
