"""The whole machine on the benches of bench_npu.py. Random layers run in tests/sim/test_rtl_layers.py."""

import dataclasses
import re

import pytest

from cores.config import FEATURES, NpuConfig
from cores.npu import Npu
from tests.bench import LANGUAGES, run_bench, verilog_of
from tests.cores.npu_on_ports import NpuOnPorts
from tests.cores.unknowns import watch_unknowns

CONFIG = NpuConfig.preset(16)
SMALL = NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=2, input_depth=1024, acc_depth=64, weight_depth=512)


def bench(config: NpuConfig, verilog: str | None = None, **options: str) -> None:
    run_bench(Npu(config), module="tests.cores.bench_npu", name="npu", parameters={"config": config.to_dict()},
              verilog=verilog, **options)


@pytest.fixture(scope="module")
def verilog() -> str:
    return verilog_of(Npu(CONFIG))


def test_machine(verilog):
    bench(CONFIG, verilog)


def test_a_program_in_four_states(verilog):
    """Read as SystemVerilog by a second simulator, which starts from X: none is in an output, nor in what controls."""
    bench(CONFIG, watch_unknowns(verilog), simulator="icarus", testcase="convolutions_run")


def test_what_is_undefined_is_found(verilog):
    broken, places = re.subn(r"(?<=\n    bus_idle <= )\w+", "1'bx", watch_unknowns(verilog))
    assert places == 1
    with pytest.raises(AssertionError, match="UNDEFINED: top has bus_idle"):
        bench(CONFIG, broken, simulator="icarus", testcase="convolutions_run")


def test_machine_on_two_read_ports():
    run_bench(NpuOnPorts(SMALL), module="tests.cores.bench_npu", name="npu_on_ports",
              parameters={"config": SMALL.to_dict(), "shared": True})


@pytest.mark.full
@pytest.mark.parametrize("language", LANGUAGES)
def test_machine_in_four_states(verilog, language):
    bench(CONFIG, verilog, simulator="icarus", language=language)


@pytest.mark.full
def test_all_units_in_four_states():
    config = dataclasses.replace(SMALL, **SMALL.feature_fields(FEATURES))
    bench(config, watch_unknowns(verilog_of(Npu(config))), simulator="icarus", testcase="compiled_layers_run")
