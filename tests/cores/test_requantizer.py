"""Requantizer: see bench_requantizer."""

import pytest

from cores.config import NpuConfig
from cores.store.requantizer import Requantizer
from tests.bench import run_bench

CONFIGS = {
    "16": NpuConfig.preset(16),
    "one_place": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, acc_width=24),
    "winograd": NpuConfig.preset(16, winograd=1),
    "product": NpuConfig.preset(16, product=1),
    "winograd_product": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, acc_width=24, winograd=1, product=1),
    "wide": NpuConfig(oc_lanes=32, ic_lanes=8, nnz_lanes=4, acc_width=32),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.full) if name == "winograd_product" else name
                                  for name in CONFIGS])
def test_requantizer(name):
    config = CONFIGS[name]
    run_bench(Requantizer(config), module="tests.cores.bench_requantizer", name=f"requantizer_{name}",
              parameters={"config": config.to_dict()})
