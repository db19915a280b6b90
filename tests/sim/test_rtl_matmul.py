"""Products of two activations on the generated Verilog."""

import pytest

from cores.config import NpuConfig
from tests.random_products import product_graph, random_products

from .on_rtl import ATTENTION, UNITS, check_bytes_and_cycles, check_each_instruction, machines

CONFIGS = {
    "turned": ATTENTION,
    "gathered": UNITS,
    "beside others": NpuConfig(oc_lanes=32, ic_lanes=16, nnz_lanes=4, turn=1, gather=1, winograd=1, depthwise=1,
                               local_store=1, input_depth=512, weight_depth=512),
}

machine = machines(CONFIGS, "gathered", "beside others")


@pytest.mark.parametrize("sizes", [
    dict(reduced=20, rows=197, size=(1, 9), zero_points=(3, -7)),
    dict(reduced=20, rows=197, size=(33, 1)),
    dict(reduced=197, rows=20, size=(1, 9), zero_points=(-128, 5), by_channels=True),
    dict(reduced=20, rows=21, outputs=32, size=(2, 3), zero_points=(3, -7)),
], ids=("scores", "symmetric", "values", "a head of several"))
def test_directed(machine, seed, sizes):
    check_bytes_and_cycles(machine, product_graph(**sizes), seed, slack=0)


@pytest.mark.parametrize("sizes", [
    dict(reduced=20, rows=49, outputs=64), dict(reduced=49, rows=20, by_channels=True),
    dict(reduced=49, rows=16, by_channels=True),
], ids=("scores", "values", "spread values"))
def test_parts(machine, seed, sizes):
    if machine.config.turn:
        graph = product_graph(**sizes, size=(7, 7), zero_points=(-128, 5), parts=3)
        check_bytes_and_cycles(machine, graph, seed, slack=0)


def test_each_instruction(machine, seed):
    if machine.config.turn:
        graph = product_graph(reduced=4, rows=2, size=(1, 8), zero_points=(8, 5), parts=4)
        check_each_instruction(machine, graph, seed)


def test_random(machine, seed):
    for number in range(seed, seed + 6):
        made = random_products(number, largest=30, parts=4 if machine.config.turn else 1)
        check_bytes_and_cycles(machine, made, number, slack=0)


@pytest.mark.full
def test_many_random(machine, seed):
    for number in range(seed, seed + 40):
        made = random_products(number, largest=50, parts=4 if machine.config.turn else 1)
        check_bytes_and_cycles(machine, made, number, slack=0)
