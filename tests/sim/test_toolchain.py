"""Tools that other programs are."""

import ctypes
from pathlib import Path

import pytest

from sim.rtl.build import compile_library
from sim.toolchain import child_process, quick_make


@pytest.mark.cli
def test_temporary_files_of_a_tool_are_in_its_folder(tmp_path: Path):
    """So they go with it, when the tool is ended before it removes them."""
    with child_process(["mktemp"], tmp_path) as process:
        said, _ = process.communicate()
    assert Path(said.strip()).parent == tmp_path


def _library(parts: str) -> Path:
    source = 'extern "C" int seven() { return 7; }\n'
    module = "module top(input wire clk, output reg q); always @(posedge clk) q <= !q; endmodule\n"
    return compile_library([parts], lambda: {"top.v": module, "seven.cpp": source}, top="top")


def _seven(library: Path) -> int:
    return ctypes.CDLL(str(library)).seven()


def test_a_damaged_library_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Loading one that is cut ends the process with a signal. What another killed process has left is not built in."""
    monkeypatch.setenv("NPUGEN_BUILD", str(tmp_path))
    monkeypatch.setenv("NPUGEN_RTL_QUICK", "1")
    library = _library("a")
    left = library.parent.with_name(f"{library.parent.name}.tmp") / "top.old" / "obj"
    left.mkdir(parents=True)
    whole = library.read_bytes()
    kept = library.stat().st_ino
    assert _library("a").stat().st_ino == kept
    library.write_bytes(whole[:len(whole) // 2])
    assert _seven(_library("a")) == 7 and library.read_bytes() == whole
    assert not left.exists()
    library.with_name("libnpu.sha256").unlink()
    library.unlink()        # this process has it mapped, and keeps that
    library.write_bytes(b"")
    assert _seven(_library("a")) == 7


def test_short_simulations_are_compiled_by_what_there_is(tmp_path: Path):
    """g++ optimises nothing then; Clang does, where it is not told otherwise."""
    without = quick_make(str(tmp_path))
    assert "OPT_FAST=-O0" in without and not any("clang" in word for word in without)
    (tmp_path / "clang++").touch(0o755)
    assert {"OPT_FAST=-O1", "CXX=clang++"} <= set(quick_make(str(tmp_path)))
    assert "OPT_FAST=-O0" in quick_make(str(tmp_path), clang="-O0")
