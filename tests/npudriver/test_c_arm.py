"""The C library's ports to bare metal: compiled for their processors, and what they ask of one."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from boards.linux import CYCLONE_V, ZYNQ_7000, ZYNQ_ULTRASCALE
from gen.deploy.c_sources import library_files

from .compiled_c import compiled
from .small import CONFIG

_STRICT = ["-std=c99", "-ffreestanding", "-O2", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror", "-c"]
_MAIN = """
#include "npugen_arm.h"
#include <stdio.h>
int main(void) {
    npugen_arm arm;
    npugen_port port;
    npugen_arm_open(&arm, &port, &SYSTEM, 0x1000, (uint8_t *)0x2000, 0x1000);
    puts("-");
    port.clean(port.context, port.memory, 64);
    puts("-");
    port.invalidate(port.context, port.memory, 64);
    puts("-");
    port.sleep(port.context, 1000000);
    puts("-");
    if (port.reset) port.reset(port.context);
    printf("-\\n%lu", (unsigned long)arm.system->interrupt);
    return 0;
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in library_files(CONFIG).items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("compiler, processor", [
    ("arm-linux-gnueabihf-gcc", "cortex-a9"), ("aarch64-linux-gnu-gcc", "cortex-a53")])
def test_they_compile_for_their_processors(folder, compiler, processor):
    if shutil.which(compiler) is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{compiler} is not installed")
    for file in ("npugen_arm.c", "npugen_bare.c", "npugen.c", "npugen_check.c"):
        done = subprocess.run([compiler, f"-mcpu={processor}", *_STRICT, file], cwd=folder, capture_output=True,
                              text=True)
        assert (done.returncode, done.stderr) == (0, "")


def _asked(folder: Path, system: str) -> list[list[str]]:
    shutil.copy(Path(__file__).parent / "arm_cpu.h", folder / "npugen_cpu.h")
    (folder / "main.c").write_text(_MAIN)
    example = compiled(folder, f"-DSYSTEM={system}", "main.c", "npugen_arm.c")
    done = subprocess.run([example], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [part.strip().splitlines() for part in done.stdout.split("-\n")]


@pytest.mark.parametrize("system, outer, interrupt", [
    ("npugen_zynq_7000", 0xF8F02000, ZYNQ_7000.interrupt), ("npugen_cyclone_v", 0xFFFEF000, CYCLONE_V.interrupt)])
def test_two_levels_of_caches(folder, system, outer, interrupt):
    """Clean from the processor outwards, invalidate from memory inwards; the interrupt is Linux's, of the shared ones.
    """
    _, clean, invalidate, sleep, reset, number = _asked(folder, system)
    sync = [f"write {outer + 0x730:x} 0", f"read {outer + 0x730:x}"]
    assert clean == ["clean 2000", "clean 2020", "barrier", f"write {outer + 0x7B0:x} 2000",
                     f"write {outer + 0x7B0:x} 2020", *sync, "barrier"]
    assert invalidate == [f"write {outer + 0x770:x} 2000", f"write {outer + 0x770:x} 2020", *sync, "barrier",
                          "invalidate 2000", "invalidate 2020", "barrier"]
    assert number == [str(interrupt + 32)]
    assert len(set(sleep)) == 1 and sleep[0].endswith(f"{0x200 + (interrupt + 32) // 32 * 4:x}")
    assert bool(reset) == (system == "npugen_zynq_7000")


def test_one_level_of_caches(folder):
    _, clean, invalidate, _, _, number = _asked(folder, "npugen_zynq_ultrascale")
    assert clean == ["clean 2000", "barrier", "barrier"]
    assert invalidate == ["barrier", "invalidate 2000", "barrier"]
    assert number == [str(ZYNQ_ULTRASCALE.interrupt + 32)]


def test_bridges_are_opened(folder):
    opened = _asked(folder, "npugen_cyclone_v")[0]
    assert opened[:4] == ["read ffd0501c", "write ffd0501c 0", "write ff800000 11", "barrier"]
    assert "write f8000900 f" in _asked(folder, "npugen_zynq_7000")[0]
