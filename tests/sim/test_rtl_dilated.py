"""Dilated convolutions without zeros on the generated Verilog: every byte, and the time model's cycles."""

import pytest

from cores.config import NpuConfig
from tests.gen.test_dilated import dilated_graph
from tests.selection import with_full

from .on_rtl import check_bytes_and_cycles, machines

CONFIGS = {"16": NpuConfig.preset(16), "64": NpuConfig.preset(64)}

machine = machines(CONFIGS, "64")


CASES = [((2, 2), (1, 1)), ((3, 2), (1, 1)), ((2, 4), (2, 2)), ((4, 6), (1, 1)), ((3, 1), (1, 1)), ((2, 3), (2, 1))]


@pytest.mark.parametrize("apart, stride", with_full(CASES, CASES[0], CASES[1]))
def test_bytes_and_cycles(machine, rng, seed, apart, stride):
    for density in (1.0, 0.2):
        check_bytes_and_cycles(machine, dilated_graph(rng, apart, stride=stride, density=density), seed, slack=20)
