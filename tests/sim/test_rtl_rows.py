"""Softmax and normalisations on the generated Verilog."""

import pytest

from tests.random_rows import narrowed, normalisation_graph, random_rows, softmax_graph

from .on_rtl import ATTENTION, check_bytes_and_cycles, check_each_instruction, machines

machine = machines({"attention": ATTENTION})


@pytest.mark.parametrize("graph", [
    softmax_graph(channels=197, size=(1, 21), heads=2, span=224),
    normalisation_graph(channels=52, size=(3, 11)),
    normalisation_graph(channels=24, size=(1, 7), centred=False),
    normalisation_graph(channels=20, size=(1, 13), heads=3, span=32),
    normalisation_graph(channels=20, size=(2, 5), scale=1e-4),
    narrowed(normalisation_graph(channels=1536, size=(1, 3)), 85),
], ids=("softmax", "normalised", "not centred", "of heads", "small beside epsilon", "long rows"))
def test_directed(machine, seed, graph):
    check_bytes_and_cycles(machine, graph, seed, slack=0)


def test_copies_begin_ahead(machine, seed):
    """Of a copy's windows the store engine takes none yet: as many begin as there is room for in the FIFO, and those
    that are under way besides."""
    check_each_instruction(machine, narrowed(normalisation_graph(channels=64, size=(1, 20)), 100), seed)


def test_random(machine, seed):
    for number in range(seed, seed + 3):
        check_bytes_and_cycles(machine, random_rows(number, largest=40), number, slack=0)


@pytest.mark.full
def test_many_random(machine, seed):
    for number in range(seed, seed + 40):
        check_bytes_and_cycles(machine, random_rows(number, largest=90), number, slack=0)
