"""Requantizer: see bench_requantizer."""

import pytest

from cores.config import NpuConfig
from cores.store.requantizer import Requantizer
from tests.bench import run_bench
from tests.selection import with_full

CONFIGS = {
    "16": NpuConfig.preset(16),
    "one_place": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, acc_width=24),
    "winograd": NpuConfig.preset(16, winograd=1),
    "product": NpuConfig.preset(16, product=1),
    "winograd_product": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, acc_width=24, winograd=1, product=1),
    "bare": NpuConfig.preset(16, multiplier_width=18, hard_block_registers=0),
    "bare_winograd": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, multiplier_width=18, hard_block_registers=0,
                               acc_width=32, winograd=1, product=1, gather=1, binary_rows=2),
    "wide": NpuConfig(oc_lanes=32, ic_lanes=8, nnz_lanes=4, acc_width=32),
}


@pytest.mark.parametrize("name", with_full(CONFIGS, "16", "winograd_product", "bare_winograd", "wide"))
def test_requantizer(name):
    config = CONFIGS[name]
    run_bench(Requantizer(config), module="tests.cores.bench_requantizer", name=f"requantizer_{name}",
              parameters={"config": config.to_dict()})
