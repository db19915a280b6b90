"""The C library: its example on the Verilog, and on files of a board."""

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .compiled_c import compiled, compiler, example_sources, on_rtl
from .fake_board import make_files
from .small import cycles, program, workload


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The sources of a program with 20 channels in, of which a block is not full, and a sample."""
    return example_sources(tmp_path, program(2, 20), workload(2, 20))


def test_the_example_runs_on_the_verilog(folder):
    """Two inferences, the second loaded while the first runs; then one whose second read fails."""
    example = on_rtl(folder)
    done = subprocess.run([example], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    first, second, differing = done.stdout.splitlines()
    assert first == second and first.startswith("small2: ") and first.endswith(" cycles")
    assert int(first.split()[1]) == pytest.approx(cycles(2, 20), rel=0.05)
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


@pytest.mark.parametrize("file", ["code.bin", "data.bin"])
def test_files_are_those_that_were_deployed(folder, file):
    """One bit is enough."""
    content = bytearray((folder / file).read_bytes())
    content[len(content) // 2] ^= 4
    (folder / file).write_bytes(content)
    done = subprocess.run([on_rtl(folder)], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == ("example: code.bin and data.bin: code or constants are damaged: deploy the program again\n")


def test_digests(folder, rng):
    """Of all lengths around a block's: SHA-256 as hashlib has it, and one that is not found right for other bytes."""
    (folder / "digests.c").write_text((Path(__file__).parent / "digests.c").read_text())
    checker = compiled(folder, "digests.c", "npugen_check.c")
    records, wanted = [], []
    for size in (*range(1, 140), 1000, 70_000):
        data = rng.bytes(size)
        for digest, found in ((hashlib.sha256(data).digest(), "0"), (hashlib.sha256(data + b"x").digest(), "10")):
            records.append(size.to_bytes(4, "little") + digest + data)
            wanted.append(found)
    done = subprocess.run([checker], cwd=folder, input=b"".join(records), capture_output=True)
    assert (done.returncode, done.stdout.decode().split()) == (0, wanted)


def test_what_is_refused(folder):
    """A program that is started twice, unloaded while it runs, lies out of reach, or has sizes that cannot be."""
    done = subprocess.run([on_rtl(folder, "misuse.c")], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def on_files(folder: Path) -> Callable[..., str]:
    """The example with Linux's backend on the files of a board: what it says, without its name."""
    make_files(folder)
    text = (folder / "npugen_uio.c").read_text()
    for usual, here in (('"/dev"', '"dev"'), ('"/sys/class"', '"class"')):
        assert usual in text
        text = text.replace(usual, here)
    (folder / "npugen_uio.c").write_text(text)
    example = compiled(folder, "example.c", "npugen.c", "npugen_check.c", "npugen_uio.c")

    def run(*arguments: str) -> str:
        done = subprocess.run([example, *arguments], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr.count("\n") == 1
        return done.stderr.removeprefix("example: ").rstrip("\n")

    return run


#: What is said of files that are all there, with nothing behind them.
NO_NPU = "opening the device: the device is no NPU of this configuration"


def test_files_of_a_board(folder, on_files):
    """Linux's backend opens what is there, by its name or its file, and says what is not."""
    for arguments in ((), ("npu",), ("/dev/uio3", "/dev/udmabuf0")):
        assert on_files(*arguments) == NO_NPU
    assert on_files("gpu") == "gpu: no such UIO device"
    assert on_files("uio9") == "class/uio/uio9/maps/map0/size: no registers"
    assert on_files("npu", "udmabuf7") == "class/udmabuf/udmabuf7/size: no such u-dma-buf; load its kernel module"
    shutil.copytree(folder / "class" / "uio" / "uio3", folder / "class" / "uio" / "uio4")
    assert on_files() == "npu: several UIO devices are called so"
    assert on_files("uio3") == NO_NPU


def test_caches_that_cannot_be_written_back(folder, on_files):
    """A memory whose files are missing is not taken for a coherent one."""
    control = folder / "class" / "u-dma-buf" / "udmabuf0" / "sync_for_cpu"
    control.unlink()
    assert on_files() == "class/u-dma-buf/udmabuf0/sync_for_cpu: No such file or directory"
    (control.parent / "dma_coherent").write_text("1\n")
    assert on_files() == NO_NPU
    (control.parent / "phys_addr").write_text(f"{(1 << 64) - 4096:#x}\n")
    assert on_files() == "class/u-dma-buf/udmabuf0/phys_addr: memory that goes beyond all addresses"
    for text in ("-1", f"{1 << 64:#x}", "none", "12 apples"):
        (control.parent / "phys_addr").write_text(f"{text}\n")
        assert on_files() == "class/u-dma-buf/udmabuf0/phys_addr: cannot be read"
    (control.parent / "phys_addr").unlink()
    assert on_files() == "class/u-dma-buf/udmabuf0/phys_addr: cannot be read"


@pytest.mark.parametrize("file, what", [("uio3", "device"), ("udmabuf0", "memory")])
def test_one_process_has_it(folder, on_files, file, what):
    """The C library and the Python driver exclude each other, too."""
    with (folder / "dev" / file).open() as taken:
        fcntl.flock(taken, fcntl.LOCK_EX)
        assert on_files() == f"dev/{file}: another process uses the {what}"
    assert on_files() == NO_NPU


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
