"""Winograd transformer: see bench_winograd_input."""

import pytest

from cores.config import NpuConfig
from cores.load.winograd.winograd_input import WinogradInput
from tests.bench import run_bench
from tests.selection import with_full

CONFIGS = {
    "narrow": NpuConfig.preset(16, winograd=1),
    "narrow_four_banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, winograd=1, input_depth=512),
    "exact": NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=2, pixel_lanes=1, winograd=2),
}


@pytest.mark.parametrize("name", with_full(CONFIGS, "narrow_four_banks"))
def test_winograd_input(name):
    config = CONFIGS[name]
    run_bench(WinogradInput(config), module="tests.cores.bench_winograd_input", name=f"winograd_input_{name}",
              parameters={"config": config.to_dict()})


def test_needs_winograd():
    with pytest.raises(ValueError, match="winograd must be 1 or 2, not 0"):
        WinogradInput(NpuConfig.preset(16))
