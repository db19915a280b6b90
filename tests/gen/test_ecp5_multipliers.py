"""ECP5's multipliers with registers and operands moved inside: the same function, cycle by cycle, as the design."""

import copy
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from gen.families.family import HIDE_ELEMENTS
from gen.families.registry import FAMILIES
from gen.netlist import ecp5_multipliers
from gen.netlist.ecp5_multipliers import pack_multipliers
from sim.toolchain import find_yosys
from tests.side_by_side import MADE, WRITTEN, run_side_by_side

#: Products as the machine has them, and such as the pass must leave alone, in whole or in part.
_DESIGN = """
module top(input clk, input clk2, input enable, input reset, input signed [7:0] a, input signed [7:0] b,
           input [17:0] wide, input signed [11:0] middle, output reg signed [15:0] narrow,
           output reg signed [15:0] shared,
           output reg [34:0] unsigned_, output reg signed [29:0] mixed, output reg signed [15:0] cleared,
           output signed [15:0] bare, output reg signed [15:0] twice, output reg signed [15:0] chain,
           output reg signed [15:0] held, output reg [15:0] started, output reg [15:0] first,
           output reg [15:0] second, output reg [15:0] late, output reg [15:0] apart, output reg [15:0] falling,
           output reg [17:0] odd, output reg [35:0] full);
    wire signed [15:0] both = b1 * m0[11:4];
    reg signed [17:0] y0 = 0; reg signed [7:0] d0 = 0; (* keep *) reg signed [7:0] k0 = 0; reg signed [15:0] marked = 0;
    reg signed [7:0] a0 = 0, b0 = 0, b1 = 0, c0 = 0; reg [17:0] w0 = 0; reg [16:0] v0 = 0;
    reg signed [11:0] m0 = 0; reg signed [17:0] x0 = 0; reg signed [15:0] one = 0; reg signed [7:0] s0 = 8'd77;
    initial {narrow, shared, unsigned_, mixed, cleared, twice, chain, held, started, first} = 0;
    initial {second, late, apart, falling, odd, full} = 0;
    always @(posedge clk2) begin
        d0 <= b;
        late <= m0[7:0] * b0;                                   // the product's clock is another one than the operands'
    end
    always @(negedge clk) falling <= b0 * b0;
    always @(posedge clk) begin
        a0 <= a; w0 <= wide; v0 <= wide[16:0]; x0 <= wide;
        if (enable) begin b0 <= b; b1 <= {b[3:0], b[7:4]}; m0 <= middle; end
        narrow <= a0 * b0;                                      // all three stages; b0 is shared
        shared <= b0 * b1;
        unsigned_ <= w0 * v0;
        mixed <= x0 * m0;
        if (reset) c0 <= 0; else c0 <= b;                       // a register with reset stays, and so the other's
        cleared <= a0 * c0;
        one <= a0 * b1;                                         // a product's register that is an operand's too
        chain <= one[7:0] * b1;
        if (enable) held <= a0 * m0[7:0];
        twice <= bare + narrow;
        if (enable) s0 <= a;                                    // a register that does not begin with 0
        started <= s0 * b0;
        first <= both;                                          // a product with two registers after it
        if (enable) second <= both;
        apart <= a0 * d0;                                       // the operands' clocks differ
        y0 <= {wide[8:0], wide[17:9]}; k0 <= a;
        full <= x0 * y0;                                        // all bits of the cell
        odd <= $signed({a0, 1'b1}) * b1 + k0 * k0;              // a constant 1; a register that is to stay
    end
    assign bare = a0 * a0;                                      // no register after it
endmodule
"""
#: The cell as its maker describes it, of what the pass uses.
_CELL = """
module MULT18X18D(%(ports)s, input SIGNEDA, SIGNEDB, CLK0, CLK1, CLK2, CLK3, CE0, CE1, CE2, CE3, RST0, RST1, RST2,
                  RST3, SOURCEA, SOURCEB, output %(products)s);
    parameter REG_INPUTA_CLK = "NONE", REG_INPUTA_CE = "CE0", REG_INPUTA_RST = "RST0";
    parameter REG_INPUTB_CLK = "NONE", REG_INPUTB_CE = "CE0", REG_INPUTB_RST = "RST0";
    parameter REG_OUTPUT_CLK = "NONE", REG_OUTPUT_CE = "CE0", REG_OUTPUT_RST = "RST0";
    parameter REG_INPUTC_CLK = "NONE", REG_PIPELINE_CLK = "NONE", CLK0_DIV = "ENABLED", GSR = "ENABLED";
    parameter CLK1_DIV = "ENABLED", CLK2_DIV = "ENABLED", CLK3_DIV = "ENABLED", HIGHSPEED_CLK = "NONE";
    parameter SOURCEB_MODE = "B_SHIFT", MULT_BYPASS = "DISABLED", CAS_MATCH_REG = "FALSE", RESETMODE = "SYNC";
    wire [17:0] a = {%(a)s}, b = {%(b)s};
    wire [4:0] a_on, b_on, p_on;                                // enabled, and whether the setting has a meaning
    assign a_on = choice(REG_INPUTA_CE), b_on = choice(REG_INPUTB_CE), p_on = choice(REG_OUTPUT_CE);
    function [4:0] choice(input [23:0] name);
        choice = name == "CE0" ? 0 : name == "CE1" ? 1 : name == "CE2" ? 2 : name == "CE3" ? 3 : 16;
    endfunction
    wire [3:0] enables = {CE3, CE2, CE1, CE0};
    reg [17:0] a_held = 0, b_held = 0;
    reg [35:0] p_held = 0;
    wire [17:0] a_used = REG_INPUTA_CLK == "NONE" ? a : a_held, b_used = REG_INPUTB_CLK == "NONE" ? b : b_held;
    wire signed [35:0] a_wide = {{18{SIGNEDA & a_used[17]}}, a_used}, b_wide = {{18{SIGNEDB & b_used[17]}}, b_used};
    wire [35:0] p = a_wide * b_wide;
    wire strange = (REG_INPUTA_CLK != "NONE" && (REG_INPUTA_CLK != "CLK0" || REG_INPUTA_RST != "RST0" || a_on[4]))
        || (REG_INPUTB_CLK != "NONE" && (REG_INPUTB_CLK != "CLK0" || REG_INPUTB_RST != "RST0" || b_on[4]))
        || (REG_OUTPUT_CLK != "NONE" && (REG_OUTPUT_CLK != "CLK0" || REG_OUTPUT_RST != "RST0" || p_on[4]));
    always @(posedge CLK0) begin
        if (RST0) a_held <= 0; else if (enables[a_on[1:0]]) a_held <= a;
        if (RST0) b_held <= 0; else if (enables[b_on[1:0]]) b_held <= b;
        if (RST0) p_held <= 0; else if (enables[p_on[1:0]]) p_held <= strange ? ~p : p;
    end
    assign {%(p)s} = REG_OUTPUT_CLK == "NONE" ? p : p_held;
endmodule
"""
_INPUTS = {"enable": 1, "reset": 1, "a": 8, "b": 8, "wide": 18, "middle": 12}
_OUTPUTS = {"narrow": 16, "shared": 16, "unsigned_": 35, "mixed": 30, "cleared": 16, "bare": 16, "twice": 16,
            "chain": 16, "held": 16, "started": 16, "first": 16, "second": 16,
            "late": 16, "apart": 16, "falling": 16, "odd": 18, "full": 36}


def _cell() -> str:
    def ports(port: str, width: int) -> str:
        return ", ".join(f"{port}{place}" for place in reversed(range(width)))

    return _CELL % {"ports": f"input {ports('A', 18)}, input {ports('B', 18)}, input {ports('C', 18)}",
                    "products": ports("P", 36), "a": ports("A", 18), "b": ports("B", 18), "p": ports("P", 36)}


def _yosys(folder: Path, *commands: str) -> None:
    (folder / "script.ys").write_text("\n".join(commands))
    ran = subprocess.run([*find_yosys(), "-q", "-s", "script.ys"], cwd=folder, capture_output=True, text=True)
    assert not ran.returncode, ran.stdout[-2000:] + ran.stderr[-2000:]


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The netlist as Yosys leaves it."""
    folder = tmp_path_factory.mktemp("mapped")
    (folder / "design.v").write_text(_DESIGN)
    _yosys(folder, "read_verilog design.v", HIDE_ELEMENTS, *FAMILIES["ecp5"].mapping("top"),
           "write_json mapped.json")
    return json.loads((folder / "mapped.json").read_text())


def _stages(netlist: dict) -> Counter:
    """How many multipliers have which registers inside."""
    cells = netlist["modules"]["top"]["cells"].values()
    return Counter("".join(name[0] for name in ("INPUTA", "INPUTB", "OUTPUT")
                           if cell["parameters"].get(f"REG_{name}_CLK", "NONE") != "NONE")
                   for cell in cells if cell["type"] == "MULT18X18D")


def test_what_is_taken_in(mapped: dict):
    """Operands' registers both or none, as nextpnr knows delays of no others; never one with a reset or a first 1."""
    netlist = copy.deepcopy(mapped)
    assert set(_stages(netlist)) == {""}
    module = netlist["modules"]["top"]
    gone = pack_multipliers(module)
    assert gone > 100
    # Operands with c0, s0, d0 and a constant 1 stay outside, and `one` went into the multiplier in front of it; what
    # reads `bare`, `both`, `falling` and the squared k0 is not one register of the rising edge.
    assert _stages(netlist) == {"IIO": 7, "II": 4, "O": 5, "": 1}
    free = [cell for cell in module["cells"].values() if cell["type"] == "MULT18X18D"]
    narrow = [cell for cell in free if [cell["connections"][f"A{place}"] for place in range(10)] == [["0"]] * 10]
    assert len(narrow) >= 5


def test_packed_cells_stay(mapped: dict):
    """Nothing is changed a second time; nor are cells that someone wrote with registers or with more than a product."""
    netlist = copy.deepcopy(mapped)
    module = netlist["modules"]["top"]
    pack_multipliers(module)
    once = copy.deepcopy(module)
    assert pack_multipliers(module) == 0 and module == once
    for change in ({"parameters": {"REG_PIPELINE_CLK": "CLK0"}}, {"parameters": {"MULT_BYPASS": "ENABLED"}},
                   {"attributes": {"keep": "00000000000000000000000000000001"}},
                   {"connections": {"CLK1": [7]}}, {"connections": {"SOURCEA": ["1"]}}, {"port_directions": {}}):
        module = copy.deepcopy(mapped["modules"]["top"])
        cells = [cell for cell in module["cells"].values() if cell["type"] == "MULT18X18D"]
        for cell in cells:
            for key, values in change.items():
                cell[key] = {**cell[key], **values} if values else {}
        before = copy.deepcopy(module)
        assert pack_multipliers(module) == 0 and module == before, change


def test_ports_without_nets():
    """As an instance with an empty connection has them."""
    cell = {"type": "MULT18X18D", "parameters": {}, "attributes": {}, "connections": {"A0": [], "P0": []},
            "port_directions": {"A0": "input", "P0": "output"}}
    assert pack_multipliers({"ports": {}, "cells": {"product": cell}, "netnames": {}}) == 0


def test_usage():
    done = subprocess.run([sys.executable, ecp5_multipliers.__file__], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "usage: python3 multipliers.py MAPPED.json PACKED.json\n")


def test_same_function(mapped: dict, tmp_path: Path):
    """Every output in every cycle, through the module as a script of its own, as projects run it."""
    (tmp_path / "mapped.json").write_text(json.dumps(mapped))
    (tmp_path / "cell.v").write_text(_cell())
    subprocess.run([sys.executable, ecp5_multipliers.__file__, "mapped.json", "packed.json"], cwd=tmp_path, check=True)
    _yosys(tmp_path, "read_json packed.json", f"rename top {MADE}", "delete =A:blackbox",
           "read_verilog -overwrite +/ecp5/cells_sim.v", "read_verilog -overwrite cell.v", f"hierarchy -top {MADE}",
           "proc", "flatten", "opt_clean", "write_verilog -noattr packed.v")
    run_side_by_side(_DESIGN.replace("module top", f"module {WRITTEN}") + (tmp_path / "packed.v").read_text(),
                     name="ecp5_multipliers", inputs=_INPUTS, outputs=_OUTPUTS, clocks=("clk", "clk2"))
