"""Register file: see bench_register_file."""

import pytest

from cores.config import NpuConfig
from cores.control.register_file import RegisterFile
from tests.bench import run_bench


@pytest.mark.parametrize("address_width, rows, alone", [(32, 0, 0), (33, 0, 1), (40, 8, 0)])
def test_register_file(address_width, rows, alone):
    config = NpuConfig.preset(256, address_width=address_width, stochastic_rows=rows, stochastic_bits=int(rows > 0),
                              cycles_only=alone)
    run_bench(RegisterFile(config), module="tests.cores.bench_register_file", name=f"register_file_{address_width}",
              parameters={"config": config.to_dict()})
