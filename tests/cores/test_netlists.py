"""What synthesis makes of the engines passes their benches: reported areas are those of a working machine."""

import pytest

from cores.compute_engine import ComputeEngine
from cores.config import NpuConfig
from cores.load_engine import LoadEngine
from tests.bench import run_bench
from tests.netlist import xilinx_netlist

pytestmark = pytest.mark.full

#: The second has multiplexers of 16 inputs.
CASES = {
    "load_engine": (LoadEngine, NpuConfig.preset(16)),
    "compute_engine": (ComputeEngine, NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=2, input_depth=256, acc_depth=64)),
}


@pytest.mark.parametrize("name", CASES)
def test_netlist(name, tmp_path):
    make, config = CASES[name]
    component = make(config)
    run_bench(component, module=f"tests.cores.bench_{name}", name=f"netlist_{name}",
              parameters={"config": config.to_dict()}, verilog=xilinx_netlist(component, tmp_path))
