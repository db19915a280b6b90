"""Winograd lane: see bench_winograd_lane."""

import pytest

from cores.load.winograd.winograd_lane import WinogradLane
from tests.bench import run_bench


@pytest.mark.parametrize("narrow", [True, False], ids=["narrow", "exact"])
def test_winograd_lane(narrow):
    run_bench(WinogradLane(narrow=narrow), module="tests.cores.bench_winograd_lane",
              name=f"winograd_lane_{'narrow' if narrow else 'exact'}", parameters={"narrow": narrow})
