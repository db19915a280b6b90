"""Copies of ECP5's registers that many parts read: the same function as the design, each copy for a few parts."""

import copy
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from boards import ecp5_copies
from boards.ecp5_copies import copy_registers
from gen.hw.families import FAMILIES, HIDE_ELEMENTS
from gen.hw.yosys import run_yosys
from tests.side_by_side import MADE, WRITTEN, run_side_by_side

_LANES = 12
#: A choice, an enable and a reset for all lanes, and a register that is to stay as it is.
_DESIGN = f"""
module lane(input clk, input choose, input enable, input reset, input kept, input [7:0] a, output [7:0] y);
    reg [7:0] held = 0;
    assign y = ~held;
    always @(posedge clk) if (reset) held <= 0; else if (enable) held <= (choose ? a : held) + kept;
endmodule
module top(input clk, input choose, input enable, input reset, input [7:0] a, output [{8 * _LANES - 1}:0] y);
    reg chosen = 1, enabled = 0, cleared = 0; (* keep *) reg kept = 0;
    always @(posedge clk) begin
        if (enable) chosen <= choose;
        enabled <= enable; cleared <= reset & choose; kept <= choose;
    end
    {"".join(f'''
    lane lane{lane}(clk, chosen, enabled, cleared, kept, a ^ {lane}, y[{8 * lane + 7}:{8 * lane}]);'''
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


def _lanes_of(module: dict) -> dict[int, set[str]]:
    """Net of a copied register, or of its copies -> lanes with a look-up table that reads it."""
    registers = {cell["connections"]["Q"][0] for name, cell in module["cells"].items() if name.startswith("chosen_")}
    lanes = defaultdict(set)
    for name, cell in module["cells"].items():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] != "output" and bits and bits[0] in registers:
                lanes[bits[0]].add(name.partition(".")[0])
    return lanes


def test_each_copy_is_for_lanes_beside_each_other(mapped: dict):
    module = copy.deepcopy(mapped["modules"]["top"])
    before = dict(module["cells"])
    assert copy_registers(module) == 2
    added = module["cells"].keys() - before.keys()
    assert len(added) == 2 and all(name.startswith("chosen_") for name in added)
    assert sorted(sorted(lanes, key=lambda name: int(name[4:])) for lanes in _lanes_of(module).values()) == [
        [f"lane{lane}" for lane in range(base, base + 4)] for base in (0, 4, 8)]
    # Copies are like the register in all but what they drive.
    originals = [cell for name, cell in module["cells"].items() if name.startswith("chosen_")]
    assert all({**cell["connections"], "Q": []} == {**originals[0]["connections"], "Q": []}
               and cell["parameters"] == originals[0]["parameters"] for cell in originals)
    nets = [cell["connections"]["Q"][0] for cell in originals]
    assert len(set(nets)) == 3
    # A second time there is nothing that reaches far.
    assert copy_registers(module) == 0


def test_few_parts_and_kept_registers_have_no_copies(mapped: dict):
    module = copy.deepcopy(mapped["modules"]["top"])
    for name in [name for name in module["cells"] if name.startswith(tuple(f"lane{lane}." for lane in range(7, 12)))]:
        del module["cells"][name]
    assert copy_registers(module) == 0
    module = copy.deepcopy(mapped["modules"]["top"])
    for cell in module["cells"].values():
        cell.setdefault("attributes", {})["keep"] = "00000000000000000000000000000001"
    assert copy_registers(module) == 0


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
                     inputs={"choose": 1, "enable": 1, "reset": 1, "a": 8}, outputs={"y": 8 * _LANES})
