"""Binary unit and its rows: see bench_binary_unit and bench_binary_row."""

import pytest

from cores.compute.binary.binary_row import BinaryRow
from cores.compute.binary.binary_unit import BinaryUnit
from cores.config import NpuConfig
from tests.bench import run_bench
from tests.selection import with_full

#: Beats of 8, 16 and 32 bytes; from one row to all.
CONFIGS = {
    "8": NpuConfig.preset(16, gather=1, binary_rows=1),
    "8_four_banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, gather=1, binary_rows=4),
    "8_one_pixel": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, gather=1, binary_rows=16),
    "16": NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=2, gather=1, binary_rows=2),
    "16_full": NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=2, gather=1, binary_rows=16),
    "32": NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=1, gather=1, binary_rows=2),
    "32_full": NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=4, gather=1, binary_rows=32),
}


@pytest.mark.parametrize("name", with_full(["8", "8_one_pixel", "16", "32"], "16", "32"))
def test_binary_row(name):
    config = CONFIGS[name]
    run_bench(BinaryRow(config), module="tests.cores.bench_binary_row", name=f"binary_row_{name}",
              parameters={"config": config.to_dict()})


@pytest.mark.parametrize("name, waits", [
    ("8", 2), ("8_four_banks", 0), ("8_one_pixel", 1),
    *(pytest.param(name, 0, marks=pytest.mark.full) for name in ("8", "16", "32", "16_full", "32_full"))])
def test_binary_unit(name, waits):
    """``waits``: cycles that its counts wait for those of a slower array."""
    config = CONFIGS[name]
    latency = BinaryUnit.shortest_latency(config) + waits
    run_bench(BinaryUnit(config, latency=latency), module="tests.cores.bench_binary_unit",
              name=f"binary_unit_{name}_{latency}", parameters={"config": config.to_dict(), "latency": latency})


def test_latency():
    config = CONFIGS["8"]
    shortest = BinaryUnit.shortest_latency(config)
    with pytest.raises(ValueError, match=f"latency must be at least {shortest}, not {shortest - 1}"):
        BinaryUnit(config, latency=shortest - 1)
