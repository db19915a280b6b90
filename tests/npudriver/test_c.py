"""The C library: its example on the Verilog, and on files of a board."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gen.deploy.c_sources import c_sources
from gen.deploy.package import encoded_sample
from gen.run.inputs import random_samples
from sim.rtl.build import build_library

from .fake_board import make_files
from .small import CONFIG, program, workload

HERE = Path(__file__).parent
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror", "-O1", "-fsanitize=undefined",
          "-fno-sanitize-recover"]


def compiler() -> str:
    found = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if found is None:
        pytest.skip("no C compiler")
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The sources of a program with 20 channels in, of which a block is not full, and a sample."""
    work = workload(2, 20)
    sample = encoded_sample(program(2, 20), work, random_samples(work.graph, work.input_shapes, seed=1))
    for name, content in c_sources(CONFIG, program(2, 20), sample).items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def compiled(folder: Path, *arguments: str | Path, standard: list[str] = STRICT) -> Path:
    done = subprocess.run([compiler(), *standard, "-o", "example", *map(str, arguments)], cwd=folder,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "example"


def on_rtl(folder: Path) -> Path:
    shutil.copy(HERE / "rtl_backend.h", folder)
    library = build_library(CONFIG)
    return compiled(folder, '-DNPUGEN_BACKEND_HEADER="rtl_backend.h"', "example.c", "npugen.c", library,
                    f"-Wl,-rpath,{library.parent}")


def test_the_example_runs_on_the_verilog(folder):
    """Two inferences, the second loaded while the first runs; then one whose second read fails."""
    example = on_rtl(folder)
    done = subprocess.run([example], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    first, second, differing = done.stdout.splitlines()
    assert first == second and first.startswith("small2: ") and first.endswith(" cycles")
    assert int(first.split()[1]) == pytest.approx(program(2, 20).cycles, rel=0.05)
    assert differing == "0 values differ from the expected ones"
    done = subprocess.run([example, "1"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("example: running: the machine stopped at an error: READ_SLVERR at instruction ")
    assert done.stderr.endswith(": the memory answered a read with an error\n")


def test_results_are_compared(folder):
    """The example must be able to find a difference."""
    wanted = bytearray((folder / "expected_0.bin").read_bytes())
    wanted[3] ^= 1
    (folder / "expected_0.bin").write_bytes(wanted)
    done = subprocess.run([on_rtl(folder)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1 and "2 values differ" in done.stdout


def test_files_of_a_board(folder):
    """Linux's backend opens what is there, and says what is not; the device is found to be none."""
    make_files(folder)
    example = compiled(folder, "example.c", "npugen.c", "npugen_uio.c")
    done = subprocess.run([example], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1 and "/sys/class/uio/uio0/maps/map0/size: no registers" in done.stderr
    text = (folder / "example.c").read_text()
    (folder / "example.c").write_text(text.replace('"/sys/class"', '"class"'))
    example = compiled(folder, "example.c", "npugen.c", "npugen_uio.c")
    done = subprocess.run([example, "dev/uio3", "dev/udmabuf0"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "example: opening the device: the device is no NPU of this configuration\n"


def test_the_makefile(folder):
    done = subprocess.run(["make", f"CC={compiler()}"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and (folder / "example").is_file(), done.stderr
    assert "warning" not in done.stderr


def test_headers_are_cpp_too(folder):
    compiler_cpp = shutil.which("c++")
    if compiler_cpp is None:
        pytest.skip("no C++ compiler")
    (folder / "all.cpp").write_text('#include "npugen_uio.h"\n#include "npugen_program.h"\n'
                                    "int main() { return npugen_model.input_count == 0; }\n")
    done = subprocess.run([compiler_cpp, "-Wall", "-Wextra", "-fsyntax-only", "all.cpp"], cwd=folder,
                          capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
