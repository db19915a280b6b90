"""The family of devices that docs/extending.md adds: its files, taken from that page, in a copy of the project."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.lint.imports import PACKAGES

PAGE = (ROOT / "docs" / "extending.md").read_text()
FILES = dict(re.findall(r"^```\w+\n# (\w+/[\w/.]+)\n(.*?)^```$", PAGE, re.M | re.S))

#: What the command line says of the board and of a machine on it, whose Verilog is that of any family; and a small
#: design, mapped, counted and timed.
_SCRIPT = """
import contextlib, io, json
import cores.emit
from cores.emit import emit_component
from gen.cli import main
from gen.hw.flat import flat_design
from gen.hw.timing import timing_of
from tests.gen.test_timing import Chain

def said(*words):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main([*words, "--json"]) == 0
    return json.loads(output.getvalue())

cores.emit.emit_verilog = lambda config: "module npu; endmodule"
verilog = emit_component(Chain(), name="chain")
with flat_design(verilog, "chain", "gw2a") as design:
    family, kinds = design.family, [cell["type"] for cell in design.module(print)["cells"].values()]
    area = dict.fromkeys(family.resources, 0)
    for resource, count in (family.counts[kind] for kind in kinds if kind in family.counts):
        area[resource] += count
    timing = timing_of(design).to_dict()
print(json.dumps({
    "build": said("build", "--board", "gw2a-55", "--macs", "16", "-o", "out"), "boards": said("boards")["boards"],
    "area": area, "timing": timing, "unknown": sorted(set(kinds) - set(family.timing))}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name in (*PACKAGES, "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "coverage", "figures"))
    return folder


@pytest.fixture(scope="module")
def result(folder: Path) -> dict:
    for name, text in FILES.items():
        assert not (folder / name).exists()
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", _SCRIPT], cwd=folder, text=True, capture_output=True,
                          env={**os.environ, "PYTHONPATH": str(folder), "NPUGEN_BUILD": str(folder / "kept")})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_it_is_two_files_beside_the_board():
    assert sorted(FILES) == ["boards/gw2a55.py", "gen/families/gw2a/__init__.py", "gen/families/gw2a/gw2a.mk.jinja"]


def test_its_board_is_listed_with_the_largest_machine_that_fits(result: dict):
    (board,) = (board for board in result["boards"] if board["name"] == "gw2a-55")
    assert board["family"] == "gw2a" and board["project"] == {"Makefile": "gw2a.mk.jinja"}
    assert board["nextpnr"][:3] == ["nextpnr-himbaechel", "--device", "GW2A-LV55PG484C8/I7"]
    assert board["largest"]["macs"] >= 16 and board["largest"]["error"] is None


def test_a_machine_is_built_for_it(result: dict, folder: Path):
    estimate = result["build"]["estimate"]
    assert list(estimate["totals"]) == ["lut", "ff", "dsp", "bsram"] and estimate["error"] is None
    # As much as ECP5, which has LUTs, multipliers and block RAMs of the same sizes.
    for name, count in (("lut", 15_900), ("ff", 12_000), ("dsp", 32), ("bsram", 48)):
        assert estimate["totals"][name] == pytest.approx(count, rel=0.1), name
    made = folder / "out"
    assert "        arch: gowin\n" in (made / "npu.core").read_text()
    makefile = (made / "Makefile").read_text()
    assert "synth_gowin -family gw2a -noiopads -top npu; write_json npu.json'" in makefile
    assert "nextpnr-himbaechel --device GW2A-LV55PG484C8/I7 --vopt family=GW2A-55 --freq 60" in makefile


def test_its_cells_are_counted_and_timed(result: dict):
    """36 bits by LUTs of four inputs and multiplexers; a multiplier; a memory of 1,024 bytes."""
    area, timing = result["area"], result["timing"]
    assert area["lut"] >= 12 and area["ff"] >= 37 and (area["dsp"], area["bsram"]) == (1, 1)
    assert timing["levels"] in (2, 3) and 2 * 1.19 < timing["delay_ns"] < 12
    assert timing["cell_ns"] is not None and timing["cell_ns"] < timing["delay_ns"]
    assert set(result["unknown"]) <= {"VCC", "GND", "$scopeinfo"}
