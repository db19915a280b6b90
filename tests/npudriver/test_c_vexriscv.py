"""What images for VexRiscv have in place of the C library's."""

import shutil
import subprocess
from pathlib import Path

from tests import ROOT
from tests.c_targets import TARGETS, require

_HERE = Path(__file__).parent
_COPIES = ROOT / "npudriver" / "c" / "vexriscv" / "copies.S"


def test_copies_by_words(tmp_path: Path) -> None:
    target = TARGETS["riscv32"]
    require(target)
    for name in target.sources:
        shutil.copy(_HERE / name, tmp_path)
    subprocess.run([target.compiler, *target.flags, "-O1", "-fno-builtin", *target.linking, "-o", "copies",
                    _HERE / "copies.c", _COPIES, "riscv32_start.c"], cwd=tmp_path, check=True)
    assert subprocess.run([target.runner, tmp_path / "copies"]).returncode == 0
    symbols = subprocess.run(["riscv64-unknown-elf-nm", "-l", "copies"], cwd=tmp_path, check=True, capture_output=True,
                             text=True).stdout.split()
    assert symbols.count("memcpy") == symbols.count("memset") == 1
