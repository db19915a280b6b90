"""Engine pair and binary engine: see bench_engine_pair and bench_binary_engine."""

import pytest

from cores.compute.binary.binary_engine import BinaryEngine
from cores.compute.engine_pair import EnginePair
from cores.config import NpuConfig
from tests.bench import run_bench

_SMALL = {"input_depth": 512, "acc_depth": 64, "gather": 1, "binary_engine": 1}
CONFIGS = {
    "16": NpuConfig.preset(16, binary_rows=1, **_SMALL),
    "one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=8, pixel_lanes=1, binary_rows=8, **_SMALL),
    "depthwise": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, binary_rows=16, **_SMALL),
}
LONG = ["16", *(pytest.param(name, marks=pytest.mark.full) for name in CONFIGS if name != "16")]


@pytest.mark.parametrize("name", LONG)
def test_binary_engine(name):
    config = CONFIGS[name]
    run_bench(BinaryEngine(config), module="tests.cores.bench_binary_engine", name=f"binary_engine_{name}",
              parameters={"config": config.to_dict()})


@pytest.mark.parametrize("name", LONG)
def test_engine_pair(name):
    config = CONFIGS[name]
    run_bench(EnginePair(config), module="tests.cores.bench_engine_pair", name=f"engine_pair_{name}",
              parameters={"config": config.to_dict()})
