"""Register file: see bench_register_file."""

import pytest

from cores.config import NpuConfig
from cores.control.register_file import RegisterFile
from tests.bench import run_bench


@pytest.mark.parametrize("address_width", [32, 40])
def test_register_file(address_width):
    config = NpuConfig.preset(256, address_width=address_width)
    run_bench(RegisterFile(config), module="tests.cores.bench_register_file", name=f"register_file_{address_width}",
              parameters={"config": config.to_dict()})
