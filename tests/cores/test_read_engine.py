"""Read engine: see bench_read_engine."""

import pytest

from cores.bus.read_engine import ReadEngine
from cores.config import NpuConfig
from tests.bench import run_bench
from tests.selection import with_full


@pytest.mark.parametrize("lanes", with_full([8, 16, 32], 8, 32))
def test_read_engine(lanes):
    config = NpuConfig(oc_lanes=32, ic_lanes=lanes)
    run_bench(ReadEngine(config), module="tests.cores.bench_read_engine", name=f"read_engine_{lanes}",
              parameters={"config": config.to_dict()})
