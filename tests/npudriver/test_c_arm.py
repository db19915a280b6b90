"""The C library's ports to bare metal: compiled for their processors, and what they ask of one."""

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from boards.board import Board
from boards.registry import BOARDS, get_board
from gen.deploy.c_sources import board_files, library_files

from .compiled_c import compiled
from .small import CONFIG

_STRICT = ["-std=c99", "-ffreestanding", "-O2", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror", "-c"]
_MAIN = """
#include "npugen_arm.h"
#include "npugen_board.h"
#include <stdio.h>
int main(void) {
    npugen_arm arm;
    npugen_port port;
    npugen_arm_open(&arm, &port, &NPUGEN_BOARD_SYSTEM, NPUGEN_BOARD_REGISTERS, NPUGEN_BOARD_INTERRUPT,
                    (uint8_t *)0x2000, 0x1000);
    puts("-");
    port.clean(port.context, port.memory, 64);
    puts("-");
    port.invalidate(port.context, port.memory, 64);
    puts("-");
    port.sleep(port.context, 1000000);
    puts("-");
    if (port.reset) port.reset(port.context);
    printf("-\\n%lx %lu", (unsigned long)(uintptr_t)port.registers, (unsigned long)arm.interrupt);
    return 0;
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in library_files(CONFIG).items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("command, processor", [
    (("arm-linux-gnueabihf-gcc",), "cortex-a9"), (("aarch64-linux-gnu-gcc",), "cortex-a53"),
    (("clang", "--target=arm-linux-gnueabihf"), "cortex-a9"), (("clang", "--target=aarch64-linux-gnu"), "cortex-a53")])
def test_they_compile_for_their_processors(folder, command, processor):
    needed = command[0], f"{command[-1].removeprefix('--target=').removesuffix('-gcc')}-gcc"      # that has the headers
    if missing := [name for name in needed if shutil.which(name) is None]:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{missing[0]} is not installed")
    for file in ("npugen_arm.c", "npugen_bare.c", "npugen.c", "npugen_check.c"):
        done = subprocess.run([*command, f"-mcpu={processor}", *_STRICT, file], cwd=folder, capture_output=True,
                              text=True)
        assert (done.returncode, done.stderr) == (0, "")


def _asked(folder: Path, board: Board) -> list[list[str]]:
    for name, content in board_files(board).items():
        (folder / name).write_bytes(content)
    shutil.copy(Path(__file__).parent / "arm_cpu.h", folder / "npugen_cpu.h")
    (folder / "main.c").write_text(_MAIN)
    example = compiled(folder, "main.c", "npugen_arm.c")
    done = subprocess.run([example], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [part.strip().splitlines() for part in done.stdout.split("-\n")]


@pytest.mark.parametrize("name, outer", [("zynq7020", 0xF8F02000), ("cyclonev", 0xFFFEF000)])
def test_two_levels_of_caches(folder, name, outer):
    """Clean from the processor outwards, invalidate from memory inwards; the interrupt is Linux's, of the shared ones.
    """
    board = get_board(name)
    interrupt = board.linux.interrupt + 32
    _, clean, invalidate, sleep, reset, found = _asked(folder, board)
    sync = [f"write {outer + 0x730:x} 0", f"read {outer + 0x730:x}"]
    assert clean == ["clean 2000", "clean 2020", "barrier", f"write {outer + 0x7B0:x} 2000",
                     f"write {outer + 0x7B0:x} 2020", *sync, "barrier"]
    assert invalidate == [f"write {outer + 0x770:x} 2000", f"write {outer + 0x770:x} 2020", *sync, "barrier",
                          "invalidate 2000", "invalidate 2020", "barrier"]
    assert found == [f"{board.registers_base:x} {interrupt}"]
    assert len(set(sleep)) == 1 and sleep[0].endswith(f"{0x200 + interrupt // 32 * 4:x}")
    assert bool(reset) == (name == "zynq7020")


def test_one_level_of_caches(folder):
    board = get_board("zcu102")
    _, clean, invalidate, _, _, found = _asked(folder, board)
    assert clean == ["clean 2000", "barrier", "barrier"]
    assert invalidate == ["barrier", "invalidate 2000", "barrier"]
    assert found == [f"{board.registers_base:x} {board.linux.interrupt + 32}"]


def test_bridges_are_opened(folder):
    opened = _asked(folder, get_board("cyclonev"))[0]
    assert opened[:4] == ["read ffd0501c", "write ffd0501c 0", "write ff800000 11", "barrier"]
    assert "write f8000900 f" in _asked(folder, get_board("zynq7020"))[0]


def test_a_changed_board_changes_what_is_made(folder):
    """Registers, interrupt and processor are those of the board's description, whatever that says."""
    board = get_board("zynq7020")
    moved = replace(board, registers_base=0x4567_0000, linux=replace(board.linux, interrupt=34))
    assert _asked(folder, moved)[-1] == ["45670000 66"]
    other = replace(board, linux=replace(board.linux, c_system="npugen_cyclone_v"))
    assert "write ffd0501c 0" in _asked(folder, other)[0]


@pytest.mark.parametrize("name", BOARDS)
def test_the_board_alone_says_where_the_machine_is(name):
    """No source of the C library has its registers, nor its interrupt's number at the controller."""
    board = BOARDS[name]
    files = board_files(board)
    assert list(files) == ([] if board.linux is None else ["npugen_board.h"])
    for file, content in (library_files(CONFIG) if files else {}).items():
        text = re.sub(r"/\*.*?\*/", "", content.decode(), flags=re.DOTALL)
        words = {int(word, 0) for word in re.findall(r"\b(?:0x[0-9a-fA-F]+|[1-9]\d*)(?=[uU]?\b)", text)}
        assert board.registers_base not in words, file
        assert file != "npugen_arm.c" or board.linux.controller_interrupt not in words, file
