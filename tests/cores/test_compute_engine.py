"""Compute engine: see bench_compute_engine."""

import pytest

from cores.compute_engine import ComputeEngine
from cores.config import NpuConfig
from cores.tile_sequencer import TileSequencer
from tests.bench import run_bench

_SMALL = {"input_depth": 512, "acc_depth": 64}
CONFIGS = {
    "16": NpuConfig.preset(16, **_SMALL),
    "dsp48e1": NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=4, multiplier_width=25, select_fanin=4, **_SMALL),
    "one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, **_SMALL),
    "unpacked": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=4, multiplier_width=18, select_fanin=4, **_SMALL),
}
FULL_CONFIGS = {
    "64": NpuConfig.preset(64),
    "256": NpuConfig.preset(256),
    "512": NpuConfig.preset(512),
    "wide": NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=4, acc_width=32, **_SMALL),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_compute_engine(name):
    run_bench(ComputeEngine(CONFIGS[name]), module="tests.cores.bench_compute_engine", name=f"compute_engine_{name}",
              parameters={"config": CONFIGS[name].to_dict()})


@pytest.mark.full
@pytest.mark.parametrize("name", FULL_CONFIGS)
def test_compute_engine_full(name):
    run_bench(ComputeEngine(FULL_CONFIGS[name]), module="tests.cores.bench_compute_engine",
              name=f"compute_engine_{name}", parameters={"config": FULL_CONFIGS[name].to_dict(), "tiles": 30})


def test_sequencer_needs_a_step():
    with pytest.raises(ValueError, match="min_step must be at least 1, not 0"):
        TileSequencer(NpuConfig.preset(16), min_step=0)
