"""Weight loader: see bench_weight_loader."""

import pytest

from cores.arch.stochastic import Circuit
from cores.compute.compute_engine import ComputeEngine
from cores.compute.weight_loader import WeightLoader
from cores.config import NpuConfig
from tests.bench import run_bench
from tests.selection import with_full

#: A beat for the weights and one for the indices; three beats that a step may lack, which with the beat before them
#: need one bit more; several of each, of a number and of size that do not fill them.
CONFIGS = {
    "16": NpuConfig.preset(16),
    "three": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, binary_rows=8, gather=1),
    "depthwise": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, gather=1, binary_rows=16),
    "streams": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, binary_rows=2, gather=1, stochastic_rows=4,
                         stochastic_circuit=Circuit.UGEMM, stochastic_bits=1),
    "int4": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, int4=1, gather=1, binary_rows=16),
    "int4_streams": NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=2, int4=1, gather=1, binary_rows=1, stochastic_rows=1,
                              stochastic_circuit=Circuit.UGEMM, stochastic_bits=1),
    "exact": NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=4, pixel_lanes=1, select_fanin=8, winograd=2),
}


@pytest.mark.parametrize("name", with_full(CONFIGS, "three", "exact", "int4_streams"))
def test_weight_loader(name):
    config = CONFIGS[name]
    taken = ComputeEngine.handover(config)
    run_bench(WeightLoader(config, taken=taken), module="tests.cores.bench_weight_loader",
              name=f"weight_loader_{name}", parameters={"config": config.to_dict(), "taken": taken})


def test_taken():
    with pytest.raises(ValueError, match="taken must be at least 2, not 1"):
        WeightLoader(CONFIGS["16"], taken=1)
