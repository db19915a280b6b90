"""Accumulators: see bench_accumulators."""

import pytest

from cores.buffers.accumulators import Accumulators
from cores.config import NpuConfig
from tests.bench import run_bench

CONFIGS = {
    "two_pixels": NpuConfig.preset(16, acc_depth=64),
    "one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, acc_width=24, acc_depth=64),
    "split": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, acc_depth=64),
    "binary": NpuConfig.preset(16, gather=1, binary_rows=1, acc_depth=64),
}


@pytest.mark.parametrize("name", ["one_pixel", "split", "binary", pytest.param("two_pixels", marks=pytest.mark.full)])
def test_accumulators(name):
    config = CONFIGS[name]
    run_bench(Accumulators(config), module="tests.cores.bench_accumulators", name=f"accumulators_{name}",
              parameters={"config": config.to_dict()})
