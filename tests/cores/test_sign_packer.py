"""Sign packer: see bench_sign_packer."""

import pytest

from cores.config import NpuConfig
from cores.store.sign_packer import SignPacker
from tests.bench import run_bench
from tests.selection import with_full

CONFIGS = {
    "8": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1, binary_rows=1),
    "32": NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=1, gather=1, binary_rows=1),
}


@pytest.mark.parametrize("name", with_full(CONFIGS, "32"))
def test_sign_packer(name):
    config = CONFIGS[name]
    run_bench(SignPacker(config), module="tests.cores.bench_sign_packer", name=f"sign_packer_{name}",
              parameters={"config": config.to_dict()})
