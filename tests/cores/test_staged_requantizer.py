"""Requantizer whose second stage has multipliers of its own: see bench_requantizer."""

import pytest

from cores.config import NpuConfig
from cores.store.stages.staged_requantizer import StagedRequantizer
from tests.bench import run_bench
from tests.selection import with_full

CONFIGS = {
    "two": NpuConfig.preset(16, product=1, store_multipliers=2),
    "three": NpuConfig.preset(16, product=1, store_multipliers=3),
    "three_plain": NpuConfig.preset(16, store_multipliers=3),
    "three_bare_winograd": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, multiplier_width=18, hard_block_registers=0,
                                     acc_width=32, winograd=1, gather=1, binary_rows=2, store_multipliers=3),
}


@pytest.mark.parametrize("name", with_full(CONFIGS, "three_plain", "three_bare_winograd"))
def test_staged_requantizer(name):
    config = CONFIGS[name]
    run_bench(StagedRequantizer(config), module="tests.cores.bench_requantizer", name=f"staged_requantizer_{name}",
              parameters={"config": config.to_dict()})
