"""The C library compiled for tests, for the Verilog of a machine or for what a test brings."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from boards.registry import get_board
from cores.config import NpuConfig
from gen.deploy.c_sources import c_sources
from gen.deploy.package import encoded_sample
from gen.run.inputs import random_samples
from gen.run.workload import Workload
from npudriver import DeployedProgram
from sim.rtl.build import build_library

from .small import CONFIG

__all__ = ["compiled", "compiler", "example_sources", "on_rtl"]

HERE = Path(__file__).parent
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror", "-O1", "-fsanitize=undefined",
          "-fno-sanitize-recover"]


def compiler() -> str:
    found = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if found is None:
        pytest.skip("no C compiler")
    return found


def example_sources(folder: Path, program: DeployedProgram, work: Workload) -> Path:
    """Write what `deploy` writes of a program, with a sample; returns ``folder``."""
    sample = encoded_sample(program, work, random_samples(work.graph, work.input_shapes, seed=1))
    for name, content in c_sources(work.program.config, program, get_board("zu3eg"), sample).items():
        (folder / name).write_bytes(content)
    return folder


def compiled(folder: Path, *arguments: str | Path) -> Path:
    done = subprocess.run([compiler(), *STRICT, "-o", "example", *map(str, arguments)], cwd=folder,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "example"


def on_rtl(folder: Path, main: str = "example.c", config: NpuConfig = CONFIG) -> Path:
    """``main``: of the folder, or of the tests'."""
    for header in ("rtl_backend.h", "rtl_program.h"):
        shutil.copy(HERE / header, folder)
    if (HERE / main).is_file():
        shutil.copy(HERE / main, folder)
    library = build_library(config)
    return compiled(folder, '-DNPUGEN_BACKEND_HEADER="rtl_backend.h"', main, "npugen.c", "npugen_check.c",
                    library,
                    f"-Wl,-rpath,{library.parent}")
