"""Runs cocotb benches on the Verilog of a component, in Verilator.

A bench is a module of cocotb tests (``tests/cores/bench_<component>.py``); the pytest test beside it makes the
component and calls `run_bench`. Inside a bench, Amaranth itself makes and takes apart values of ports with a layout::

    dut.i__payload.value = layout.const({"address": 4096, "beats": 7}).as_bits()
    payload = layout.from_bits(int(dut.o__payload.value))

Environment: NPUGEN_SEED repeats a run, NPUGEN_WAVES=1 writes ``dump.vcd`` into the build folder.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

from amaranth.lib import wiring
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

from cores.emit import emit_component
from sim.toolchain import verilator_environment

__all__ = ["bench_parameters", "run_bench", "verilog_of"]

ROOT = Path(__file__).parent.parent
_TOP = "top"
#: Yosys writes operands of unequal width, initial values beside processes and state machines without a default for
#: codes that do not occur; all are what the netlist means.
_WAIVED = ["WIDTHEXPAND", "WIDTHTRUNC", "PROCASSINIT", "CASEINCOMPLETE", "UNOPTFLAT"]
#: cocotb's runner makes every signal public, which Verilator then cannot optimise: four times as much C++ to compile. A
#: bench uses ports alone, and these are marked in the text.
_BUILD_ARGS = ["-O3", "-no-public-flat-rw", *(f"-Wno-{rule}" for rule in _WAIVED)]
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


def _share_runtime(source: Path, target: Path) -> None:
    """Copy Verilator's library objects, the same in every build: half of a small bench's build time."""
    later = time.time() + 3600  # newer than the makefile of the build to come, on which they depend
    for item in source.glob("verilated*.o"):
        shutil.copy(item, target / item.name)
        os.utime(target / item.name, (later, later))


def _build(verilog: str, name: str, waves: bool) -> Path:
    """Folder of the compiled simulation, made once for each Verilog text."""
    key = hashlib.sha256("\0".join([verilog, str(waves), *_BUILD_ARGS]).encode()).hexdigest()[:16]
    folder = ROOT / "build" / "cocotb" / f"{name}-{key}"
    if (folder / _TOP).exists():
        return folder
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
    scratch.mkdir(parents=True, exist_ok=True)
    (scratch / f"{_TOP}.v").write_text(_publish_ports(verilog))
    log = scratch / "build.log"
    runtime = folder.with_name(f"runtime-{hashlib.sha256(repr((_BUILD_ARGS, waves)).encode()).hexdigest()[:16]}")
    _share_runtime(runtime, scratch)
    try:
        get_runner("verilator").build(
            sources=[scratch / f"{_TOP}.v"], hdl_toplevel=_TOP, build_dir=scratch, build_args=_BUILD_ARGS,
            timescale=("1ns", "1ps"), waves=waves, log_file=log,
        )
    except Exception as error:
        raise AssertionError(f"{name}: Verilator failed ({error}):\n{log.read_text()[-4000:]}") from None
    runtime.mkdir(exist_ok=True)
    _share_runtime(scratch, runtime)
    try:
        scratch.rename(folder)
    except OSError:  # another process has made the same build meanwhile
        shutil.rmtree(scratch)
    return folder


def run_bench(component: wiring.Component, *, module: str, name: str, parameters: Mapping | None = None,
              testcase: str | None = None, verilog: str | None = None) -> None:
    """Run the cocotb tests of ``module`` (such as ``tests.cores.bench_store_engine``) on ``component``.

    ``name`` names the build folder. ``parameters`` (JSON values) reach the bench through `bench_parameters`;
    ``testcase`` picks one test, ``verilog`` is used instead of the component's own. The seed, printed at the start, is
    in cocotb.RANDOM_SEED and has seeded ``random``.

    Raises AssertionError when the build or a test fails, or when no test has run.
    """
    seed = int(os.environ.get("NPUGEN_SEED") or secrets.randbelow(1 << 31))
    waves = os.environ.get("NPUGEN_WAVES", "0") not in ("", "0")
    if verilog is None:
        verilog = verilog_of(component)
    with mock.patch.dict(os.environ, verilator_environment()):
        folder = _build(verilog, name, waves)
        results = folder / f"results.{os.getpid()}.xml"
        print(f"{name}: NPUGEN_SEED={seed}")
        environment = {"NPUGEN_PARAMETERS": json.dumps(dict(parameters or {})), "COCOTB_ANSI_OUTPUT": "0"}
        log = folder / f"run.{os.getpid()}.log"
        try:
            get_runner("verilator").test(
                test_module=module, testcase=testcase, hdl_toplevel=_TOP, hdl_toplevel_lang="verilog", build_dir=folder,
                test_dir=folder, seed=seed, waves=waves, results_xml=str(results), extra_env=environment, log_file=log,
            )
        except SystemExit:
            pass  # the runner's way of saying that a test failed; the results say which
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
