"""Convolutions in groups on the generated Verilog: every byte, and the time model's cycles."""

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.mapping.grouped import GroupedMapping
from sim.rtl import RtlMachine
from tests.gen.test_grouped import grouped_graph, pair_graph
from tests.selection import with_full

from .on_rtl import check_bytes_and_cycles, machines

_SMALL = dict(input_depth=512, acc_depth=64, weight_depth=512)
#: Lanes that reach all channels of a block, and lanes with a choice of two.
CONFIGS = {
    "all": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, **_SMALL),
    "two": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, select_fanin=2, depthwise=1, **_SMALL),
    "256": NpuConfig.preset(256, depthwise=1),
}

machine = machines(CONFIGS, "two", "256")


#: Inputs and outputs of a group, and the layer's stride.
CASES = [(4, 4, 1), (12, 8, 2), (3, 5, 1), (8, 8, 1), (16, 16, 2), (7, 2, 1)]


@pytest.mark.parametrize("inputs, outputs, stride", with_full(CASES, *CASES[2:]))
def test_bytes_and_cycles(machine: RtlMachine, inputs: int, outputs: int, stride: int, rng: np.random.Generator,
                          seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupedMapping, "demanded", True)
    size = (int(rng.integers(5, 16)), int(rng.integers(5, 24)))
    for limit in (120, 255):
        graph = grouped_graph(rng, 6, inputs, outputs, size=size, stride=(stride, stride), limit=limit)
        check_bytes_and_cycles(machine, graph, seed, slack=40)
    check_bytes_and_cycles(machine, pair_graph(rng, 4, inputs, outputs, size=size), seed, slack=40)
