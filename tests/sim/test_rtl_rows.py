"""Softmax and normalisations on the generated Verilog."""

import pytest

from cores.config import NpuConfig
from sim.cycles import estimate
from sim.rtl import Bus, RtlMachine
from tests.compiled import compile_kept
from tests.random_rows import normalisation_graph, random_rows, softmax_graph

from .on_rtl import check_on_rtl


@pytest.fixture(scope="module")
def machine():
    with RtlMachine(NpuConfig.preset(16, rows=16, input_depth=512), seed=1) as machine:
        yield machine


def check(machine: RtlMachine, graph, seed: int) -> None:
    program, graph = compile_kept(graph, machine.config)
    check_on_rtl(machine, program, graph, seed)
    result = check_on_rtl(machine, program, graph, seed, bus=Bus())
    assert estimate(machine.config, program.code).cycles == pytest.approx(result.counters["cycles"], rel=0.005, abs=20)


@pytest.mark.parametrize("graph", [
    softmax_graph(channels=197, size=(1, 21), heads=2, span=224),
    normalisation_graph(channels=52, size=(3, 11)),
    normalisation_graph(channels=24, size=(1, 7), centred=False),
], ids=("softmax", "normalised", "not centred"))
def test_directed(machine, seed, graph):
    check(machine, graph, seed)


def test_random(machine, seed):
    for number in range(seed, seed + 3):
        check(machine, random_rows(number, largest=40), number)


@pytest.mark.full
def test_many_random(machine, seed):
    for number in range(seed, seed + 40):
        check(machine, random_rows(number, largest=90), number)
