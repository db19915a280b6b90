"""Runs whole models in C on a simulated device, and compares what comes out with Python.

    python -m tests.c_models MODEL.onnx|NAME ... [--macs 16] [--on verilog] [--json]

A model is a file, or a network of tests/c_networks.py by its name; of NAME@N the pictures are N x N. Each is deployed
by `gen deploy --language c`, compiled with the compiler's warnings as errors, and run over one sample twice. ``--on``
says where:

* ``verilog``: the example of the package, on the Verilog;
* ``gcc``, ``gcc-sanitized``, ``clang-sanitized``: on this host, with the functional simulator as the device;
* ``armv7``, ``aarch64``, ``riscv32``, ``riscv32-soft``: on such a processor under qemu, with the same device. The last
  one has no floating-point unit.

Prints the programs and bytes for a sample on its way, and how many values differ: integers by one bit, real numbers by
more than 1e-4 of the largest. For the processors it also prints what a sample costs there: the accelerator's cycles (by
the time model) beside the instructions of the processor's part with what it takes of the C library, those of the
driver, and those of copies, as a plugin of qemu counts them (compiled by -O2); bytes of code and of constants. The exit
status is 1 where any value differs.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from boards.registry import get_board
from cores.config import NpuConfig
from cores.errors import NpugenError
from gen.deploy.c_model import CModel, ModelPort, write_c_package
from gen.run.application import open_application
from gen.run.inputs import arbitrary_samples
from sim.rtl.build import build_library
from tests.c_networks import NETWORKS_OF_C, made_network
from tests.c_targets import BACKENDS, FUNCTIONS, LIBRARY, TARGETS, Target, build, instructions, kinds, sizes
from tests.piped_device import Answers, PipedError, run_piped

__all__ = ["FLAGS", "Deployed", "compile_model", "deployed", "differing", "measured", "piped", "run_model"]

_BACKEND = Path(__file__).parent / "npudriver" / "rtl_backend.h"
FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror", "-O1", "-fsanitize=undefined",
         "-fno-sanitize-recover")

#: Of what is deployed.
BOARD = "zu3eg"
#: Of the largest value of an output; as TOLERANCE of npudriver/c/model/main.c.
TOLERANCE = 1e-4


def compile_model(folder: Path, config: NpuConfig, compiler: str = "cc") -> Path:
    """The example of a ``folder`` of `deploy --language c`, on the Verilog. Raises CalledProcessError."""
    shutil.copy(_BACKEND, folder)
    library = build_library(config)
    sources = ["main.c", *sorted(path.name for path in folder.iterdir()
                                 if path.suffix in (".c", ".S") and path.name not in BACKENDS)]
    subprocess.run([compiler, *FLAGS, f'-DNPUGEN_BACKEND_HEADER="{_BACKEND.name}"', "-o", "example", *sources,
                    str(library), f"-Wl,-rpath,{library.parent}", "-lm"], cwd=folder, check=True)
    return (folder / "example").resolve()


def run_model(example: Path) -> subprocess.CompletedProcess[str]:
    """In its own folder, where the samples are."""
    return subprocess.run([example], cwd=example.parent, capture_output=True, text=True)


@dataclass(frozen=True, eq=False)
class Deployed:
    """A package of `deploy --language c` in ``folder``. ``inputs``, ``expected``: those of its sample, in order."""

    folder: Path
    config: NpuConfig
    model: CModel
    programs: int
    inputs: list[bytes]
    expected: list[bytes]


def deployed(path: Path, folder: Path, config: NpuConfig) -> Deployed:
    """Raises what `open_application` and `write_c_package` raise."""
    application = open_application(path, config)
    model = write_c_package(folder, application, arbitrary_samples(application.inputs, seed=0),
                            get_board(BOARD))
    return Deployed(folder, config, model, len(application.file.programs),
                    [(folder / f"input_{number}.bin").read_bytes() for number in range(len(model.inputs))],
                    [(folder / f"expected_{number}.bin").read_bytes() for number in range(len(model.outputs))])


def piped(package: Deployed, command: list[str], samples: int = 2) -> Answers:
    """What its sample gives, so many times."""
    element = [np.dtype(port.dtype).itemsize for port in package.model.outputs]
    found = run_piped(command, package.config, [package.inputs] * samples, element)
    if found.status is not None:
        raise PipedError(f"a call had the outcome {found.status}")
    return found


def differing(package: Deployed, answers: Answers) -> int:
    """Values that are not Python's, all of an output whose size is another."""
    return sum(_differing(port, expected, sample[number][1])
               for sample in answers.outputs
               for number, (port, expected) in enumerate(zip(package.model.outputs, package.expected, strict=True)))


def _differing(port: ModelPort, expected: bytes, found: bytes) -> int:
    wanted, got = (np.frombuffer(data, port.dtype) for data in (expected, found))
    if wanted.size != got.size:
        return max(wanted.size, got.size)
    if wanted.dtype.kind != "f":
        return int((wanted != got).sum())
    return int((~(np.abs(wanted - got) <= TOLERANCE * np.abs(wanted).max(initial=0))).sum())


def measured(package: Deployed, target: Target) -> dict[str, int]:
    """What a sample costs on ``target``: that of two without that of one."""
    command = build(package.folder, target)
    answers = piped(package, command)
    figures = {"cycles": answers.cycles // 2, "differ": differing(package, answers),
               "sum": zlib.crc32(b"".join(answers.outputs[0][n][1] for n in range(len(package.expected))))}
    if target.runner:
        one, two = (kinds(package.folder, target, instructions(
            package.folder, target, command, partial(piped, package, samples=count))) for count in (1, 2))
        figures |= {name: b - a for name, a, b in zip(("processor", "driver", "copies"), one, two, strict=True)}
        for name, sources in (("part", [FUNCTIONS]), ("library", LIBRARY)):
            figures[f"{name}_code"], figures[f"{name}_constants"] = sizes(package.folder, target, sources)
    return figures


def _on_verilog(package: Deployed) -> dict[str, int]:
    done = run_model(compile_model(package.folder, package.config))
    found = re.fullmatch(r"(\d+) values differ from the expected ones\n", done.stdout)
    if found is None:
        raise PipedError(f"ended with {done.returncode}: {done.stderr}")
    return {"differ": int(found[1])}


_COST = ("{cycles:,} cycles of the accelerator; instructions: {processor:,} of the processor's part, {driver:,} of the "
         "driver, {copies:,} of copies; bytes of code and constants: {part_code:,} and {part_constants:,} of that "
         "part, {library_code:,} and {library_constants:,} of the library")


def _words(figures: Mapping[str, int]) -> str:
    words = [f"{figures['differ']} values differ from the expected ones"]
    if "processor" in figures:
        words = [_COST.format(**figures), *words]
    return "; ".join(words)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.c_models", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL.onnx|NAME")
    parser.add_argument("--macs", type=int, default=16, metavar="N", help="of the machine (default 16)")
    parser.add_argument("--on", default="verilog", metavar="WHERE,...",
                        help=f"of verilog, {', '.join(TARGETS)} (default verilog)")
    parser.add_argument("--json", action="store_true", help="print one object")
    arguments = parser.parse_args()
    places = arguments.on.split(",")
    if unknown := sorted(set(places) - {"verilog", *TARGETS}):
        parser.error(f"there is no {unknown[0]!r}: --on takes verilog, {', '.join(TARGETS)}")
    try:
        return _run(arguments, places)
    except (NpugenError, PipedError, OSError) as error:
        parser.exit(2, f"c_models: {error}\n")


def _run(arguments: argparse.Namespace, places: Sequence[str]) -> int:
    config = get_board(BOARD).config(arguments.macs)
    found: dict[str, dict[str, dict[str, int]]] = {}
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as temporary:
            made = name.partition("@")[0] in NETWORKS_OF_C
            path = made_network(name, Path(temporary)) if made else Path(name)
            package = deployed(path, Path(temporary) / "c", config)
            facts = {"programs": package.programs, "arena": package.model.arena}
            for where in places:
                figures = _on_verilog(package) if where == "verilog" else measured(package, TARGETS[where])
                found.setdefault(path.stem, {})[where] = facts | figures
                if not arguments.json:
                    print(f"{path.stem} on {where}: {package.programs:,} programs, {package.model.arena:,} bytes for a "
                          f"sample on its way; {_words(figures)}", flush=True)
    if arguments.json:
        json.dump(found, sys.stdout, indent=1)
    return int(any(figures["differ"] for targets in found.values() for figures in targets.values()))


if __name__ == "__main__":
    sys.exit(main())
