"""Pool unit: see bench_pool_unit."""

import pytest

from cores.compute.pool_unit import PoolUnit
from cores.config import NpuConfig
from tests.bench import run_bench

CONFIGS = {
    "one_bank": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1),
    "four_banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_pool_unit(name):
    config = CONFIGS[name]
    run_bench(PoolUnit(config), module="tests.cores.bench_pool_unit", name=f"pool_unit_{name}",
              parameters={"config": config.to_dict()})
