"""Write engine: see bench_write_engine."""

import pytest

from cores.bus.write_engine import WriteEngine
from cores.config import NpuConfig
from tests.bench import run_bench
from tests.selection import with_full


@pytest.mark.parametrize("lanes", with_full([8, 16, 32], 8, 32))
def test_write_engine(lanes):
    config = NpuConfig(oc_lanes=32, ic_lanes=lanes)
    run_bench(WriteEngine(config), module="tests.cores.bench_write_engine", name=f"write_engine_{lanes}",
              parameters={"config": config.to_dict()})
