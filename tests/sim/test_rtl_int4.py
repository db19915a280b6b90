"""Weights of four bits on the generated Verilog: bytes, and cycles."""

import pytest

from cores.config import NpuConfig
from tests.random_int4 import random_int4

from .on_rtl import check_bytes_and_cycles, machines

#: The rows of other units go through the chain by turns; words of one pixel; windows.
CONFIGS = {
    "narrow": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, input_depth=512, weight_depth=512, int4=1),
    "units": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, input_depth=512, int4=1, depthwise=1, gather=1,
                       binary_rows=16),
    "fan-in 4": NpuConfig(oc_lanes=32, ic_lanes=16, nnz_lanes=4, select_fanin=4, input_depth=512, int4=1),
}

machine = machines(CONFIGS, "narrow", "fan-in 4")


def test_random_layers(machine, seed):
    for number in range(6):
        check_bytes_and_cycles(machine, random_int4(seed + number), seed + number, slack=16)


@pytest.mark.full
@pytest.mark.parametrize("part", range(4))
def test_many_random_layers(machine, seed, part):
    for number in range(100 * (part + 1), 100 * (part + 1) + 12):
        check_bytes_and_cycles(machine, random_int4(seed + number, layers=3, max_size=20), seed + number, slack=16)
