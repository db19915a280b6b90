"""Runs cocotb benches on the Verilog of a component, in Verilator, or in Icarus, which knows X.

A bench is a module of cocotb tests (``tests/cores/bench_<component>.py``); the pytest test beside it makes the
component and calls `run_bench`. Inside a bench, Amaranth itself makes and takes apart values of ports with a layout::

    dut.i__payload.value = layout.const({"address": 4096, "beats": 7}).as_bits()
    payload = layout.from_bits(int(dut.o__payload.value))

Environment: NPUGEN_SEED repeats a run, NPUGEN_WAVES=1 writes ``dump.vcd`` (Icarus: ``top.fst``) into the build folder,
NPUGEN_SIMULATOR=icarus runs every bench there.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from unittest import mock

import pytest
from amaranth.lib import wiring
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

from cores.emit import emit_component
from sim.toolchain import keep_runtime, lend_runtime, quick_make, verilator_environment
from tests.cores.simulation import stream_ports

__all__ = [
    "LANGUAGES", "Language", "WAIVED", "bench_parameters", "need_icarus", "produced_streams", "run_bench", "verilog_of",
]

#: The standard by which Icarus reads the Verilog: the same file must be right by both.
Language = Literal["1364-2005", "1800-2012"]
LANGUAGES: Mapping[Language, str] = {"1364-2005": "-g2005", "1800-2012": "-g2012"}

ROOT = Path(__file__).parent.parent
_TOP = "top"
#: Yosys writes operands of unequal width, initial values beside processes, and functions whose conditions exclude each
#: other without saying so. All are what the netlist means.
WAIVED = ["WIDTHEXPAND", "WIDTHTRUNC", "PROCASSINIT", "CASEOVERLAP"]
#: cocotb's runner makes every signal public, which Verilator then cannot optimise: four times as much C++ to compile. A
#: bench uses ports alone, and these are marked in the text.
_BUILD_ARGS = ["-O3", "-no-public-flat-rw", *(f"-Wno-{rule}" for rule in WAIVED)]
#: Python in the simulator has details of assertions of benches alone, and keeps what it compiles: cocotb would have
#: those of all modules, NumPy's among them, which takes it seconds.
_PYTHON = {"COCOTB_REWRITE_ASSERTION_FILES": "bench_*.py", "PYTHONDONTWRITEBYTECODE": ""}
_TOP_MODULE = re.compile(rf"^module {_TOP}\b.*?^endmodule", re.MULTILINE | re.DOTALL)
_PORT = re.compile(r"^  (?:input|output) [^;]*", re.MULTILINE)


def verilog_of(component: wiring.Component) -> str:
    """Verilog of module ``top``; ports are named by signature path joined with ``__``: ``o__valid``, ``o__payload``."""
    return emit_component(component, name=_TOP)


def _publish_ports(verilog: str) -> str:
    return _TOP_MODULE.sub(lambda top: _PORT.sub(r"\g<0> /*verilator public_flat_rw*/", top.group()), verilog)


def bench_parameters() -> dict:
    """Inside a bench: the ``parameters`` that `run_bench` was given."""
    return json.loads(os.environ.get("NPUGEN_PARAMETERS", "{}"))


def produced_streams() -> list[str]:
    """Inside a bench: the streams that the component produces, as its ports are named."""
    return json.loads(os.environ.get("NPUGEN_STREAMS", "[]"))


def _build(verilog: str, name: str, waves: bool, simulator: str, arguments: list[str]) -> Path:
    """Folder of the compiled simulation, made once for each Verilog text."""
    key = hashlib.sha256("\0".join([verilog, str(waves), simulator, *arguments]).encode()).hexdigest()[:16]
    folder = ROOT / "build" / "cocotb" / f"{name}-{key}"
    if folder.exists():
        return folder
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
    scratch.mkdir(parents=True, exist_ok=True)
    (scratch / f"{_TOP}.v").write_text(_publish_ports(verilog) if simulator == "verilator" else verilog)
    log = scratch / "build.log"
    runtime = folder.with_name(f"runtime-{hashlib.sha256(repr((arguments, waves)).encode()).hexdigest()[:16]}")
    lend_runtime(runtime, scratch)
    try:
        get_runner(simulator).build(
            sources=[scratch / f"{_TOP}.v"], hdl_toplevel=_TOP, build_dir=scratch, build_args=arguments,
            timescale=("1ns", "1ps"), waves=waves, log_file=log,
        )
    except Exception as error:
        raise AssertionError(f"{name}: {simulator} failed ({error}):\n{log.read_text()[-4000:]}") from None
    if simulator == "verilator":
        keep_runtime(scratch, runtime)
    try:
        scratch.rename(folder)
    except OSError:  # another process has made the same build meanwhile
        shutil.rmtree(scratch)
    return folder


def need_icarus() -> None:
    """Skip the test where Icarus is not installed; fail it where CI is set, which has to install it."""
    if shutil.which("iverilog") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("Icarus Verilog (iverilog) is not installed")


def _tools(simulator: str, language: Language) -> tuple[Mapping[str, str], list[str]]:
    """A simulator's environment and its arguments. Skips the test where Icarus is not installed."""
    if simulator == "verilator":
        settings = verilator_environment()
        settings["MAKEFLAGS"] += " " + " ".join(quick_make(settings.get("PATH"), clang="-O0"))
        return settings, _BUILD_ARGS
    if simulator != "icarus":
        raise ValueError(f"the simulator must be verilator or icarus, not {simulator!r}")
    need_icarus()
    return {}, [LANGUAGES[language]]


def run_bench(component: wiring.Component, *, module: str, name: str, parameters: Mapping | None = None,
              testcase: str | None = None, verilog: str | None = None, simulator: str | None = None,
              language: Language = "1800-2012") -> None:
    """Run the cocotb tests of ``module`` (such as ``tests.cores.bench_store_engine``) on ``component``.

    ``name`` names the build folder. ``parameters`` (JSON values) reach the bench through `bench_parameters`;
    ``testcase`` picks one test, ``verilog`` is used instead of the component's own. ``simulator`` (verilator or icarus;
    default NPUGEN_SIMULATOR, else verilator) reads it, Icarus by ``language``. The seed, printed at the start, is in
    cocotb.RANDOM_SEED and has seeded ``random``.

    Raises AssertionError when the build or a test fails, or when no test has run.
    """
    seed = int(os.environ.get("NPUGEN_SEED") or secrets.randbelow(1 << 31))
    waves = os.environ.get("NPUGEN_WAVES", "0") not in ("", "0")
    if verilog is None:
        verilog = verilog_of(component)
    simulator = simulator or os.environ.get("NPUGEN_SIMULATOR") or "verilator"
    settings, arguments = _tools(simulator, language)
    with mock.patch.dict(os.environ, settings):
        folder = _build(verilog, name, waves, simulator, arguments)
        results = folder / f"results.{os.getpid()}.xml"
        print(f"{name}: NPUGEN_SEED={seed}")
        streams = [port.name.replace(".", "__") for port in stream_ports(component) if port.produces]
        environment = {"NPUGEN_PARAMETERS": json.dumps(dict(parameters or {})),
                       "NPUGEN_STREAMS": json.dumps(streams), "COCOTB_ANSI_OUTPUT": "0", **_PYTHON}
        log = folder / f"run.{os.getpid()}.log"
        try:
            get_runner(simulator).test(
                test_module=module, testcase=testcase, hdl_toplevel=_TOP, hdl_toplevel_lang="verilog", build_dir=folder,
                test_dir=folder, seed=seed, waves=waves, results_xml=str(results), extra_env=environment, log_file=log,
            )
        except (SystemExit, RuntimeError):
            pass  # the runner's ways of saying that a test failed, or the simulator; the results say which
    text = log.read_text()[-12000:]
    try:
        ran, failed = get_results(results)
    except RuntimeError:
        raise AssertionError(f"{name}: the simulation broke off (NPUGEN_SEED={seed}):\n{text}") from None
    if failed:
        raise AssertionError(f"{name}: {failed} of {ran} tests failed (NPUGEN_SEED={seed}):\n{text}")
    assert ran, f"{name}: {module} ran no test"
    results.unlink()
    log.unlink()
