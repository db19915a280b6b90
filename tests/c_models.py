"""Runs whole models in C on the Verilog, and compares what comes out with Python.

    python -m tests.c_models MODEL.onnx ... [--macs 16]

Each is deployed by `gen deploy --language c`, compiled with the compiler's warnings as errors, and run over one sample
twice. Prints the programs, bytes for a sample on its way, bytes of the processor's part (compiled by -Os, with its
constants), and how many values differ. The exit status is 1 where any does.
"""

import argparse
import contextlib
import io
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from boards.registry import get_board
from cores.config import NpuConfig
from gen.cli import main as gen
from sim.rtl.build import build_library

__all__ = ["FLAGS", "compile_model", "run_model"]

_BACKEND = Path(__file__).parent / "npudriver" / "rtl_backend.h"
FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror", "-O1", "-fsanitize=undefined",
         "-fno-sanitize-recover")

#: What a model on the simulation does without: back ends and ports of others.
_ELSEWHERE = ("main.c", "npugen_arm.c", "npugen_bare.c", "npugen_uio.c")


def compile_model(folder: Path, config: NpuConfig, compiler: str = "cc") -> Path:
    """The example of a ``folder`` of `deploy --language c`, on the Verilog. Raises CalledProcessError."""
    shutil.copy(_BACKEND, folder)
    library = build_library(config)
    sources = ["main.c", *sorted(path.name for path in folder.iterdir()
                                 if path.suffix in (".c", ".S") and path.name not in _ELSEWHERE)]
    subprocess.run([compiler, *FLAGS, f'-DNPUGEN_BACKEND_HEADER="{_BACKEND.name}"', "-o", "example", *sources,
                    str(library), f"-Wl,-rpath,{library.parent}", "-lm"], cwd=folder, check=True)
    return (folder / "example").resolve()


def run_model(example: Path) -> subprocess.CompletedProcess[str]:
    """In its own folder, where the samples are."""
    return subprocess.run([example], cwd=example.parent, capture_output=True, text=True)


def _measured(model: Path, macs: int, folder: Path) -> str:
    config = get_board("zu3eg").config(macs)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        if gen(["deploy", str(model), "--macs", str(macs), "--language", "c", "-o", str(folder), "--json"]):
            return "not deployed"
    facts = json.loads(said.getvalue())
    done = run_model(compile_model(folder, config))
    functions = folder / "npugen_functions.c"
    subprocess.run(["cc", "-std=c99", "-Os", "-c", functions.name], cwd=folder, check=True)
    text = subprocess.run(["size", "npugen_functions.o"], cwd=folder, check=True, capture_output=True, text=True)
    code = int(text.stdout.splitlines()[1].split()[0])
    programs = sum(name.endswith("_code.bin") for name in facts["files"])
    return (f"{programs:,} programs, {facts['arena']:,} bytes for a sample on its way; the processor's part "
            f"{code:,} bytes with its constants: {done.stdout.strip() or done.stderr.strip()}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.c_models", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL.onnx")
    parser.add_argument("--macs", type=int, default=16, metavar="N", help="of the machine (default 16)")
    arguments = parser.parse_args()
    wrong = 0
    for model in arguments.models:
        with tempfile.TemporaryDirectory() as temporary:
            said = _measured(model, arguments.macs, Path(temporary) / "c")
        wrong += not said.endswith(": 0 values differ from the expected ones")
        print(f"{model.name}: {said}", flush=True)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
