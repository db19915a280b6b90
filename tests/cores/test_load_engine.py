"""Load engine: see bench_load_engine."""

import pytest

from cores.config import NpuConfig
from cores.load_engine import LoadEngine
from tests.bench import run_bench

CONFIGS = {
    "16": NpuConfig.preset(16),
    "one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, input_depth=1024),
    "128": NpuConfig.preset(128),
    "four_banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, input_depth=512),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_load_engine(name):
    config = CONFIGS[name]
    run_bench(LoadEngine(config), module="tests.cores.bench_load_engine", name=f"load_engine_{name}",
              parameters={"config": config.to_dict()})
