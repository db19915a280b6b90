"""Line memory of the Winograd transformer: see bench_winograd_lines."""

from cores.config import NpuConfig
from cores.load.winograd.winograd_lines import WinogradLines
from tests.bench import run_bench


def test_winograd_lines():
    config = NpuConfig.preset(16, winograd=1)
    run_bench(WinogradLines(config), module="tests.cores.bench_winograd_lines", name="winograd_lines",
              parameters={"config": config.to_dict()})
