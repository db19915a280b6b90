"""Copies of ECP5's registers that many parts read: the same function as the design, each copy for a few parts."""

import copy
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from gen.families.family import HIDE_ELEMENTS
from gen.families.registry import FAMILIES
from gen.hw.yosys import run_yosys
from gen.netlist import ecp5_copies
from gen.netlist.ecp5_copies import copy_registers
from tests.side_by_side import MADE, WRITTEN, run_side_by_side

_LANES = 12
#: For all lanes a choice, an enable and a reset, a choice that is an output as well and is read in every cycle, and a
#: register that is to stay; two stages that take over what is of another clock; a divided clock.
_DESIGN = f"""
module lane(input clk, input choose, input enable, input reset, input more, input kept, input far, input half,
            input [7:0] a, output [7:0] y);
    reg [7:0] held = 0, always_ = 0, slow = 0;
    assign y = ~held ^ always_ ^ slow;
    always @(posedge clk) begin
        if (reset) held <= 0; else if (enable) held <= (choose ? a : held) + kept;
        always_ <= more ? a ^ {{8{{far}}}} : always_ + 1;
    end
    always @(posedge half) slow <= more ? a : ~slow;
endmodule
module top(input clk, input clk2, input choose, input enable, input reset, input [7:0] a, output reg more,
           output [{8 * _LANES - 1}:0] y);
    reg chosen = 1, enabled = 0, cleared = 0, other = 0, first = 0, second = 0, half = 0;
    (* keep = "true" *) reg kept = 0;
    initial more = 1;
    always @(posedge clk2) other <= choose;
    always @(posedge clk) begin
        if (a[1]) chosen <= choose ^ a[4];
        enabled <= enable | a[0]; cleared <= reset & choose & a[2]; kept <= choose; more <= choose ^ a[3];
        first <= other; second <= first; half <= ~half;
    end
    {"".join(f'''
    lane lane{lane}(clk, chosen, enabled, cleared, more, kept, second, half, a ^ {lane},
                    y[{8 * lane + 7}:{8 * lane}]);'''
             for lane in range(_LANES))}
endmodule
"""


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The netlist as Yosys leaves it."""
    folder = tmp_path_factory.mktemp("mapped")
    (folder / "design.v").write_text(_DESIGN)
    run_yosys("\n".join(["read_verilog design.v", "hierarchy -top top", "flatten", HIDE_ELEMENTS,
                         *FAMILIES["ecp5"].mapping("top"), "write_json mapped.json", ""]), folder, print)
    return json.loads((folder / "mapped.json").read_text())


def _lanes_of(module: dict, register: str) -> list[list[str]]:
    """Lanes with a look-up table that reads a register, and those of each of its copies."""
    nets = {cell["connections"]["Q"][0]: name for name, cell in module["cells"].items()
            if cell["type"] == "TRELLIS_FF" and name.startswith(register)}
    lanes = defaultdict(set)
    for name, cell in module["cells"].items():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] != "output" and bits and bits[0] in nets and "lane" in name:
                lanes[bits[0]].add(int(name.removeprefix("lane").partition(".")[0]))
    return sorted(sorted(found) for found in lanes.values())


def test_each_copy_is_for_lanes_beside_each_other(mapped: dict):
    module = copy.deepcopy(mapped["modules"]["top"])
    before = set(module["cells"])
    assert copy_registers(module) == 4
    assert {name.partition("_TRELLIS")[0] for name in module["cells"].keys() - before} == {"chosen", "more"}
    for register in ("chosen", "more"):
        assert _lanes_of(module, register) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    # The port stays with the register, and copies have names.
    assert module["ports"]["more"]["bits"] == module["cells"]["more_TRELLIS_FF_Q"]["connections"]["Q"]
    assert module["netnames"]["more_TRELLIS_FF_Q_COPY_2_Q"]["bits"] == (
        module["cells"]["more_TRELLIS_FF_Q_COPY_2"]["connections"]["Q"])
    # A second time there is nothing that reaches far.
    assert copy_registers(module) == 0


def test_what_has_no_copies(mapped: dict):
    """Few parts; registers to keep, of another clock or just after it, and clocks: none of these in the test above."""
    all_lanes = list(range(_LANES))
    assert [_lanes_of(mapped["modules"]["top"], name) for name in ("second", "kept")] == [[all_lanes]] * 2
    module = copy.deepcopy(mapped["modules"]["top"])
    for name in [name for name in module["cells"] if name.startswith(tuple(f"lane{lane}." for lane in range(7, 12)))]:
        del module["cells"][name]
    assert copy_registers(module) == 0
    for keep in ("00000000000000000000000000000001", "true", "1 "):
        module = copy.deepcopy(mapped["modules"]["top"])
        for cell in module["cells"].values():
            cell.setdefault("attributes", {})["keep"] = keep
        assert copy_registers(module) == 0


def test_cells_of_a_memory_are_one_part():
    cells = {f"memory.0.{number}": {
        "type": "TRELLIS_DPR16X4", "port_directions": {"RAD": "input"}, "connections": {"RAD": [2]}}
        for number in range(12)}
    cells["address_TRELLIS_FF_Q"] = {
        "type": "TRELLIS_FF", "port_directions": {"Q": "output", "DI": "input"}, "parameters": {},
        "connections": {"Q": [2], "DI": ["1"]}}
    assert copy_registers({"ports": {}, "cells": cells, "netnames": {}}) == 0


def test_usage():
    done = subprocess.run([sys.executable, ecp5_copies.__file__], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "usage: python3 copies.py NETLIST.json COPIED.json\n")


def test_same_function(mapped: dict, tmp_path: Path):
    """Through the module as a script of its own, as projects run it."""
    (tmp_path / "mapped.json").write_text(json.dumps(mapped))
    subprocess.run([sys.executable, ecp5_copies.__file__, "mapped.json", "copied.json"], cwd=tmp_path, check=True)
    run_yosys("\n".join(["read_json copied.json", f"rename top {MADE}", "delete =A:blackbox",
                         "read_verilog -overwrite +/ecp5/cells_sim.v", f"hierarchy -top {MADE}", "proc", "flatten",
                         "opt_clean", "write_verilog -noattr copied.v", ""]), tmp_path, print)
    written = _DESIGN.replace("module top", f"module {WRITTEN}")
    run_side_by_side(written + (tmp_path / "copied.v").read_text(), name="ecp5_copies",
                     inputs={"choose": 1, "enable": 1, "reset": 1, "a": 8}, outputs={"more": 1, "y": 8 * _LANES},
                     clocks=("clk", "clk2"))
