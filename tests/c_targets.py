"""Processors that models in C are compiled for, and what runs the result: the host, and others by qemu.

`RISCV32` has no operating system: tests/npudriver/riscv32_start.c is what picolibc wants of one.
"""

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["BACKENDS", "FUNCTIONS", "LIBRARY", "TARGETS", "Target", "build", "instructions", "kinds", "missing",
           "require", "sizes"]

_HERE = Path(__file__).parent / "npudriver"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror")
#: Of a package, what a program over another back end does without.
BACKENDS = ("doctor.c", "main.c", "npugen_arm.c", "npugen_bare.c", "npugen_uio.c")
#: What a model consists of, in a package: the processor's part, the library with the calls, programs.
FUNCTIONS, DATA = "npugen_model_functions.c", "npugen_model_data.S"
LIBRARY = ("npugen.c", "npugen_check.c", "npugen_model.c")


@dataclass(frozen=True)
class Target:
    """``runner``: what runs a program, nothing for the host. ``sources``: more of them. ``flags`` are for compiler and
    linker, ``compiling`` and ``linking`` for one of both. ``tools``: what the names of nm and size begin with.
    """

    name: str
    compiler: str
    flags: tuple[str, ...] = ()
    runner: str = ""
    sources: tuple[str, ...] = ()
    compiling: tuple[str, ...] = ()
    linking: tuple[str, ...] = ()
    tools: str = ""


_SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
_PICOLIBC = "--specs=picolibc.specs"
_BARE = ("-nostartfiles", "-T", "riscv32.ld")
TARGETS = {target.name: target for target in (
    Target("gcc", "gcc"),
    Target("gcc-sanitized", "gcc", _SANITIZED),
    Target("clang-sanitized", "clang", _SANITIZED),
    Target("armv7", "arm-linux-gnueabihf-gcc", ("-march=armv7-a+fp",), "qemu-arm",
           linking=("-static",), tools="arm-linux-gnueabihf-"),
    Target("aarch64", "aarch64-linux-gnu-gcc", (), "qemu-aarch64", linking=("-static",),
           tools="aarch64-linux-gnu-"),
    Target("riscv32", "riscv64-unknown-elf-gcc", (_PICOLIBC, "-march=rv32imafc", "-mabi=ilp32f"),
           "qemu-riscv32", ("riscv32_start.c", "riscv32.ld"), linking=_BARE, tools="riscv64-unknown-elf-"),
    Target("riscv32-soft", "riscv64-unknown-elf-gcc", (_PICOLIBC, "-march=rv32imac", "-mabi=ilp32"),
           "qemu-riscv32", ("riscv32_start.c", "riscv32.ld"), linking=_BARE, tools="riscv64-unknown-elf-"),
)}


def missing(target: Target) -> str | None:
    """What is not installed; None if all is."""
    names = [name for name in (target.compiler, target.runner) if name and shutil.which(name) is None]
    if not names and target.sources and not Path(subprocess.run(
            [target.compiler, "-print-file-name=picolibc.specs"], capture_output=True, text=True).stdout).is_absolute():
        names = ["picolibc"]
    return " and ".join(names) or None


def require(target: Target) -> None:
    """Skip a test without what ``target`` wants; fail it where CI is set, which installs that (.ci/tools)."""
    if (what := missing(target)) is not None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{target.name} wants {what}")


def build(folder: Path, target: Target, *, optimise: str = "-O2", flags: Sequence[str] = (),
          program: str = "piped_model.c", library: Sequence[str] = (FUNCTIONS, *LIBRARY, DATA)) -> list[str]:
    """The command that runs a ``program`` of tests/npudriver over a pipe, with sources of a ``folder``: of the model
    that `deploy --language c` has written there, unless others are named. Its objects are in the folder ``TARGET`` of
    it. Raises CalledProcessError.
    """
    for name in ("piped_backend.h", "piped_work.h", program, *target.sources):
        shutil.copy(_HERE / name, folder)
    own = folder / target.name
    own.mkdir(exist_ok=True)
    sources = (program, *(name for name in target.sources if name.endswith(".c")), *library)
    options = ("-g", optimise, "-ffp-contract=off", *target.flags, *flags)
    objects = [f"{target.name}/{Path(name).stem}.o" for name in sources]
    for name, made in zip(sources, objects, strict=True):
        subprocess.run([target.compiler, *STRICT, *target.compiling, *options, "-c", "-o", made, name], cwd=folder,
                       check=True)
    subprocess.run([target.compiler, *options, *target.linking, "-o", f"{target.name}/model", *objects, "-lm"],
                   cwd=folder, check=True)
    return [*filter(None, [target.runner]), str((own / "model").resolve())]


def sizes(folder: Path, target: Target, names: Sequence[str]) -> tuple[int, int]:
    """Bytes of code and of constants of some sources that `build` has compiled."""
    objects = [f"{target.name}/{Path(name).stem}.o" for name in names]
    done = subprocess.run([f"{target.tools}size", "-A", *objects], cwd=folder, check=True, capture_output=True,
                          text=True)
    code = constants = 0
    for words in map(str.split, done.stdout.splitlines()):
        if words and words[0].startswith(".text"):
            code += int(words[1])
        elif words and words[0].startswith((".rodata", ".srodata", ".data", ".sdata")):
            constants += int(words[1])
    return code, constants


def instructions(folder: Path, target: Target, command: Sequence[str],
                 run: Callable[[list[str]], object]) -> Counter[str]:
    """Function -> instructions that ``run(command)`` executes, as a plugin of qemu counts them."""
    plugin, counts = (folder / "instructions.so").resolve(), (folder / "instructions.txt").resolve()
    subprocess.run(["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC", "-o", plugin,
                    _HERE / "instructions.c"], check=True)
    run([command[0], "-plugin", f"{plugin},to={counts}", *command[1:]])
    names = subprocess.run([f"{target.tools}nm", "-n", command[-1]], check=True, capture_output=True, text=True).stdout
    rows = [words for words in map(str.split, names.splitlines()) if len(words) == 3]       # those with an address
    symbols = [(int(address, 16), name) for address, kind, name in rows if kind in "tTwW" and not name.startswith("$")]
    return _by_function(counts.read_text(), symbols)


#: Of the C library, what the pipe takes; it is the driver's as well.
_CALLS = ("read", "write", "call", "__libc_read", "__libc_write", "malloc", "free", "calloc")
_COPIES = ("memcpy", "memmove", "memset")


def kinds(folder: Path, target: Target, counts: Mapping[str, int]) -> tuple[int, int, int]:
    """Instructions of the processor's part with what it takes of the C library, of the driver, and of copies, which
    both make.
    """
    objects = [f"{target.name}/{Path(name).stem}.o" for name in (*LIBRARY, "piped_model.c")]
    said = subprocess.run([f"{target.tools}nm", *objects], cwd=folder, check=True, capture_output=True, text=True)
    driver = {line.split()[-1] for line in said.stdout.splitlines() if line.split()[-2:-1] in (["t"], ["T"])}
    found: Counter[str] = Counter()
    for name, count in counts.items():
        found["driver" if name in driver or name in _CALLS else
              "copies" if any(word in name for word in _COPIES) else "own"] += count
    return found["own"], found["driver"], found["copies"]


def _by_function(text: str, symbols: Sequence[tuple[int, str]]) -> Counter[str]:
    found: Counter[str] = Counter()
    place = 0
    for address, count, times in sorted(tuple(map(int, line.split())) for line in text.splitlines()):
        while place + 1 < len(symbols) and symbols[place + 1][0] <= address:
            place += 1
        found[symbols[place][1]] += count * times
    return found
