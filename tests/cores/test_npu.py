"""The whole machine on the benches of bench_npu.py. Random layers run in tests/sim/test_rtl_layers.py."""

import dataclasses
import re

import pytest

from cores.config import COMPUTING_FEATURES, NpuConfig
from cores.npu import Npu
from tests.bench import LANGUAGES, run_bench, verilog_of
from tests.cores.npu_on_ports import NpuOnPorts
from tests.cores.unknowns import forget_contents, watch_unknowns

CONFIG = NpuConfig.preset(16)
SMALL = NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=2, input_depth=1024, acc_depth=64, weight_depth=512)


def bench(config: NpuConfig, verilog: str | None = None, *, watched: bool = False, **options: str) -> None:
    """``watched``: the Verilog looks for what is undefined by itself (`watch_unknowns`)."""
    run_bench(Npu(config), module="tests.cores.bench_npu", name="npu", verilog=verilog,
              parameters={"config": config.to_dict(), "watched": watched}, **options)


@pytest.fixture(scope="module")
def verilog() -> str:
    return verilog_of(Npu(CONFIG))


def test_machine(verilog):
    bench(CONFIG, verilog)


def test_a_program_in_four_states(verilog, seed):
    """Read as SystemVerilog by a second simulator, which starts from X: none is in an output that is offered, nor in
    what controls. Nor do results depend on what is in the input buffer at first."""
    forgetful = forget_contents(verilog, seed)
    assert forgetful.count("  initial begin") == CONFIG.banks + 1       # and the queue of the array
    bench(CONFIG, watch_unknowns(forgetful), watched=True, simulator="icarus", testcase="convolutions_run")


def test_what_is_undefined_is_found(verilog):
    broken, places = re.subn(r"(?<=\n    bus_idle <= )\w+", "1'bx", watch_unknowns(verilog))
    assert places == 1
    with pytest.raises(AssertionError, match="UNDEFINED: top has bus_idle"):
        bench(CONFIG, broken, watched=True, simulator="icarus", testcase="convolutions_run")


def test_what_is_read_unwritten_is_found(verilog, seed):
    """The write buffer's beat is not written: what goes to memory is undefined, and noticed."""
    broken, places = re.subn(r"(module \\top\.write\.buffer .*?if )\(\\\$signal \)", r"\1(1'b0)",
                             watch_unknowns(forget_contents(verilog, seed)), flags=re.DOTALL)
    assert places == 1
    with pytest.raises(AssertionError, match="UNDEFINED: top has m_axi__wdata"):
        bench(CONFIG, broken, watched=True, simulator="icarus", testcase="convolutions_run")


@pytest.mark.full    # test_read_ports.py has what shares them
def test_machine_on_two_read_ports():
    run_bench(NpuOnPorts(SMALL), module="tests.cores.bench_npu", name="npu_on_ports",
              parameters={"config": SMALL.to_dict(), "shared": True})


@pytest.mark.full
@pytest.mark.parametrize("language", LANGUAGES)
def test_machine_in_four_states(verilog, language):
    bench(CONFIG, verilog, simulator="icarus", language=language)


@pytest.mark.full
def test_all_units_in_four_states(seed):
    config = dataclasses.replace(SMALL, **SMALL.feature_fields(COMPUTING_FEATURES))
    forgetful = forget_contents(verilog_of(Npu(config)), seed)
    bench(config, watch_unknowns(forgetful), watched=True, simulator="icarus", testcase="compiled_layers_run")
