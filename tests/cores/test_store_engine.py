"""Store engine: see bench_store_engine."""

import pytest

from cores.config import NpuConfig
from cores.store.store_engine import StoreEngine
from tests.bench import run_bench
from tests.selection import with_full

CONFIGS = {
    "one_group": NpuConfig.preset(32, depthwise=1),
    "two_groups": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, acc_depth=64),
    "two_groups_depthwise": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, acc_depth=64, depthwise=1),
    "local": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, acc_depth=64, depthwise=1, local_store=1),
    "local_gather": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, acc_depth=64, input_depth=256, gather=1,
                              local_store=1),
    "local_one_bank": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, acc_depth=64, input_depth=256,
                                local_store=1),
    "one_pixel": NpuConfig(oc_lanes=32, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, acc_width=24, acc_depth=64),
    "binary": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, acc_depth=64, depthwise=1, gather=1,
                        binary_rows=8),
    "binary_one_pixel": NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=1, pixel_lanes=1, acc_depth=64, gather=1,
                                  binary_rows=1),
    "product": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, acc_depth=64, depthwise=1, local_store=1, product=1,
                         multiplier_width=18, hard_block_registers=0),
    "product_winograd": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, acc_depth=256, winograd=1, product=1),
    "two_multipliers": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, acc_depth=256, depthwise=1, winograd=1,
                                 store_multipliers=2),
    "three_multipliers": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, acc_depth=64, depthwise=1, local_store=1,
                                   product=1, gather=1, binary_rows=8, store_multipliers=3),
    "winograd": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, acc_depth=256, depthwise=1, winograd=1),
    "exact": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, winograd=2),
    "maximum": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, acc_depth=256, depthwise=1, gather=1, binary_rows=8,
                         winograd=1, maximum=1),
    "maximum_one_pixel": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, acc_depth=64, maximum=1),
    "narrow": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, acc_depth=64, depthwise=1, local_store=1,
                        store_lanes=2),
    "narrow_halves": NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=4, acc_depth=64, pixel_lanes=1, multiplier_width=18,
                               hard_block_registers=0, store_lanes=1),
    "wide": NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=4, pixel_lanes=2, acc_width=32, address_width=64),
}


@pytest.mark.parametrize("name", with_full(CONFIGS, "two_groups", "two_groups_depthwise", "local", "local_one_bank",
                                           "one_pixel", "binary_one_pixel", "product_winograd", "wide", "one_group",
                                           "local_gather", "maximum_one_pixel", "narrow_halves"))
def test_store_engine(name):
    config = CONFIGS[name]
    run_bench(StoreEngine(config), module="tests.cores.bench_store_engine", name=f"store_engine_{name}",
              parameters={"config": config.to_dict()})
