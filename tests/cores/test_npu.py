"""The whole machine on the benches of bench_npu.py. Random layers run in tests/sim/test_rtl_layers.py."""

from cores.config import NpuConfig
from cores.npu import Npu
from tests.bench import run_bench


def test_machine():
    config = NpuConfig.preset(16)
    run_bench(Npu(config), module="tests.cores.bench_npu", name="npu", parameters={"config": config.to_dict()})
