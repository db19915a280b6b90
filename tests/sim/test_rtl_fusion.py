"""Random depthwise and pointwise layers on the generated Verilog, fused wherever that is possible."""

import random

import pytest

from cores.config import NpuConfig
from gen.random_layers import random_pairs
from gen.trial import Trial
from sim.rtl import RtlMachine

from .test_rtl_layers import check

CONFIGS = {
    "32": NpuConfig.preset(32, depthwise=1, local_store=1),
    "64": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, input_depth=512, acc_depth=64, weight_depth=512, depthwise=1,
                    local_store=1),
}


@pytest.fixture(scope="module", params=CONFIGS)
def machine(request):
    with RtlMachine(CONFIGS[request.param], seed=1) as machine:
        yield machine


@pytest.fixture
def always(seed, monkeypatch):
    """Fuse wherever it is possible, in any of the ways that are tried."""
    chance = random.Random(seed)
    monkeypatch.setattr(Trial, "cycles", lambda self, packed, fused, *layers: chance.random() - 9 * len(fused))


def test_random_pairs(machine, seed, always):
    fused = 0
    for number in range(20):
        program = check(machine, seed + number, max_size=16, make=random_pairs)
        fused += [layer.mode for layer in program.layers].count("fused")
    assert fused > 8


@pytest.mark.full
@pytest.mark.parametrize("part", range(8))
def test_many_random_pairs(machine, seed, part, always):
    for number in range(12):
        check(machine, seed + 100 * part + number, max_size=24, make=random_pairs)
