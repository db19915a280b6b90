"""Families of devices: how they are found, what they refuse, and that their parts go together."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from boards.registry import BOARDS
from gen.families.family import Cells, Family
from gen.families.registry import FAMILIES, find_families, get_family
from gen.hw.hardware import delay_model_digest
from gen.hw.yosys import LOG, run_yosys
from gen.netlist.cells import lut
from npudriver.files import read_text
from tests import ROOT


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_a_board_has_a_family_and_what_it_counts(board):
    assert tuple(board.resources) == get_family(board.family).resources


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_every_template_is_used(family: Family):
    """Those that lie beside it; each of a project, of a system, or included."""
    used = {*family.project.values(), *({family.system.makefile} if family.system else ())}
    package = Path(str(sys.modules[family.package].__file__))
    shared = {path.name: path for path in (ROOT / "gen/families/templates").iterdir()}
    here = {path.name: path for path in package.parent.glob("*.jinja")}
    for name in list(used):
        text = {**shared, **here}[name].read_text()
        used |= set(re.findall(r'{% include "(\S+)" %}', text))
    assert here.keys() <= used and used <= here.keys() | shared.keys()


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_every_counted_cell_is_timed_and_named_once(family: Family):
    assert set(family.counts) <= set(family.timing)
    assert set(family.resources) == {resource for resource, _ in family.counts.values()}


def test_cells_that_do_not_go_together():
    family = get_family("ecp5")
    with pytest.raises(ValueError, match="family ecp5: cell LUT4 is named twice"):
        replace(family, cells=(*family.cells, Cells(lut, "LUT5 LUT4", "lut")))
    with pytest.raises(ValueError, match="family ecp5: alm must be one of lut, ff, dsp, ebr"):
        replace(family, cells=(*family.cells, Cells(lut, "LUT5", "alm")))
    with pytest.raises(ValueError, match="family ecp5: bram must be one of lut, ff, dsp, ebr"):
        replace(family, unmeasured={"bram": 2})


def test_two_families_of_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "more_families"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "helper.py").touch()
    for name in ("one", "two"):
        (folder / f"{name}.py").write_text("from gen.families.ecp5 import FAMILY\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="more_families.two: there is a family 'ecp5' already"):
        find_families("more_families", [str(folder)])
    (folder / "two.py").unlink()
    assert find_families("more_families", [str(folder)]) == {"ecp5": get_family("ecp5")}
    assert {"cyclonev", "ecp5", "xc7", "xcup"} <= set(FAMILIES)


def test_a_delay_model_changes_with_what_times_its_cells(monkeypatch: pytest.MonkeyPatch):
    """Its own module, those of the functions that it takes, and its numbers; not with those of other families."""
    read: dict[str, tuple[str, ...]] = {}
    for name in FAMILIES:
        monkeypatch.setattr("gen.hw.hardware.sources_digest", lambda *paths, name=name: read.setdefault(name, paths)[0])
        delay_model_digest(name)
    shared = {"gen/hw/timing.py", "gen/hw/sta.py", "gen/netlist/graph.py", "gen/netlist/delays.py",
              "gen/netlist/cells.py"}
    assert {name: set(paths) - shared for name, paths in read.items()} == {
        "cyclonev": {"gen/families/cyclonev/__init__.py"},
        "ecp5": {"gen/families/ecp5/__init__.py", "gen/families/ecp5/cells.py"},
        "xc7": {"gen/families/series7/__init__.py", "gen/families/xilinx.py"},
        "xcup": {"gen/families/ultrascale/__init__.py", "gen/families/xilinx.py"}}
    assert len({delay_model_digest(name) for name in FAMILIES}) == len(FAMILIES)


def test_cyclonev_maps_to_look_up_tables_as_yosys_does_with_longer_wires(tmp_path: Path):
    """What is in the place of the label is Yosys's own, but for the delay of a wire."""
    run_yosys("help synth_intel_alm\n", tmp_path, lambda remark: None)
    script = read_text(tmp_path / LOG).split("map_luts:")[1].split("check:")[0]
    own = [line.strip().replace("[-dff] ", "") for line in script.splitlines() if line.strip()]
    given = get_family("cyclonev").synthesis.luts_for_timing
    assert [re.sub(r"-W \d+", "-W", line) for line in given] == [re.sub(r"-W \d+", "-W", line) for line in own]
    commands = get_family("cyclonev").flat_netlist("top", "out.json")
    first, *_, last = [command for command in commands if "-run" in command]
    assert commands[commands.index(first) + 1:commands.index(last)] == list(given)
    assert (first.split()[-1], last.split()[-1]) == ("begin:map_luts", "check:")
