"""Load engine: see bench_load_engine and bench_load_flow."""

import pytest

from cores.config import NpuConfig
from cores.load.load_engine import LoadEngine
from tests.bench import run_bench
from tests.selection import with_full

CONFIGS = {
    "16": NpuConfig.preset(16, input_depth=512),
    "one_pixel": NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=4, pixel_lanes=1, input_depth=512),
    "128": NpuConfig.preset(128),
    "four_banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, input_depth=512),
    "gather": NpuConfig.preset(64, gather=1, input_depth=512),
    "winograd": NpuConfig.preset(16, winograd=1, input_depth=512),
    "winograd_gather": NpuConfig.preset(64, gather=1, winograd=1, input_depth=512),
    "winograd_local": NpuConfig.preset(16, local_store=1, winograd=1, input_depth=512),
    "gather_local": NpuConfig.preset(64, gather=1, local_store=1, input_depth=512),
    "exact": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, winograd=2, input_depth=512),
    "wide": NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=4, pixel_lanes=2, input_depth=256, address_width=64),
}


#: Bench -> configurations that are in `make test`.
QUICK = {"bench_load_engine": ("16", "gather", "winograd"), "bench_load_flow": ("16",)}


@pytest.mark.parametrize("bench, name", [
    pytest.param(bench, name, marks=() if name in quick else pytest.mark.full)
    for bench, quick in QUICK.items() for name in CONFIGS])
def test_load_engine(name, bench):
    config = CONFIGS[name]
    run_bench(LoadEngine(config), module=f"tests.cores.{bench}", name=f"load_engine_{name}",
              parameters={"config": config.to_dict()})


GATHERING = {
    "two_banks": NpuConfig.preset(64, gather=1, input_depth=512),
    "four_banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, gather=1, input_depth=512),
    "one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, gather=1, input_depth=512),
    "wide": NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=4, pixel_lanes=2, gather=1, input_depth=512),
}


@pytest.mark.parametrize("name", with_full(GATHERING, "two_banks", "one_pixel", "wide"))
def test_gathered_loads(name):
    config = GATHERING[name]
    run_bench(LoadEngine(config), module="tests.cores.bench_gather", name=f"gather_{name}",
              parameters={"config": config.to_dict()})


SIGNS = {
    "two_banks": NpuConfig.preset(64, gather=1, binary_rows=2, input_depth=512),
    "four_banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, gather=1, binary_rows=4,
                            input_depth=512),
    "one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, gather=1, binary_rows=8,
                           input_depth=512),
}


@pytest.mark.parametrize("name", with_full(SIGNS, "two_banks", "one_pixel"))
def test_loads_of_signs(name):
    config = SIGNS[name]
    run_bench(LoadEngine(config), module="tests.cores.bench_sign_loads", name=f"sign_loads_{name}",
              parameters={"config": config.to_dict()})
