"""What UltraScale+'s multiplier slices take in beside a product: the same function, cycle by cycle, as the design."""

import json
import re
from collections import Counter

import pytest
from amaranth.hdl import Shape
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cores.compute.mac_array import MacRow
from cores.config import NpuConfig
from cores.load.gather.run_spans import RunSpans
from cores.store.requantizer_lane import RequantizerLane
from gen.families.family import HIDE_ELEMENTS
from gen.families.registry import FAMILIES
from gen.hw.yosys import SynthesisError, mapped
from tests.bench import verilog_of
from tests.side_by_side import MADE, WRITTEN, run_side_by_side

#: Products with registers on every side, sums after them, before them, and such as cannot move.
_DESIGN = """
module top(input clk, input enable, input reset, input signed [26:0] a, input signed [17:0] b,
           input signed [25:0] c, input signed [25:0] d,
           output reg signed [44:0] product, output reg signed [45:0] pair, output reg signed [47:0] sum,
           output reg signed [44:0] ahead, output reg signed [47:0] running, output reg signed [44:0] cleared,
           output reg signed [45:0] less, output signed [44:0] bare, output reg [25:0] narrow,
           output reg signed [36:0] differs, output reg signed [47:0] chosen, output above);
    reg signed [26:0] a0 = 0, a1 = 0; reg signed [17:0] b0 = 0, b1 = 0; reg signed [25:0] c0 = 0, d0 = 0;
    reg signed [35:0] m5 = 0; reg signed [36:0] total = 0;
    reg signed [17:0] e0 = 0, f0 = 0; reg signed [18:0] both = 0, apart = 0; reg [12:0] u0 = 0, v0 = 0;
    reg signed [44:0] m0 = 0, m1 = 0, m2 = 0, m3 = 0, m4 = 0;
    initial {product, pair, sum, ahead, running, cleared, less, narrow, differs, chosen} = 0;
    always @(posedge clk) begin
        a0 <= a; a1 <= a0; c0 <= c; d0 <= d; e0 <= d[17:0]; f0 <= c[17:0]; u0 <= a[12:0]; v0 <= c[12:0];
        if (enable) begin b0 <= b; b1 <= b0; end
        product <= a1 * b1;                             // two registers in front
        m0 <= a0 * b0; m1 <= a1 * b1;
        pair <= m0 + m1;                                // of two products, one of them out of the slice beside it
        m2 <= a0 * b1;
        sum <= m2 + c0;
        both <= e0 + f0;
        ahead <= both * b0;                             // a sum in front, which stays
        if (reset) running <= 0; else if (enable) running <= running + a0 * b1;
        if (reset) cleared <= 0; else cleared <= a1 * b0;
        m3 <= a0 * e0;
        less <= m3 - c0;
        narrow <= u0 * v0;                              // without signs
        apart <= e0 - f0;
        differs <= apart * b1;                          // a difference in front, which stays
        m4 <= e0 * b0; m5 <= f0 * b1;
        chosen <= (enable ? chosen : c0) + m4;          // an accumulation from one of two
        total <= m5 + d0;
    end
    assign above = total >= 1024;                       // a comparison of a sum
    assign bare = a1 * d0[17:0];                         // without signs too wide for one slice
endmodule
"""
_INPUTS = {"enable": 1, "reset": 1, "a": 27, "b": 18, "c": 26, "d": 26}
_OUTPUTS = {"product": 45, "pair": 46, "sum": 48, "ahead": 45, "running": 48, "cleared": 45, "less": 46, "bare": 45,
            "narrow": 26, "differs": 37, "chosen": 48, "above": 1}

#: The slice as its maker describes it, of what the pass uses; a setting without a meaning makes outputs wrong.
_SLICE = """
module DSP48E2(input [29:0] A, ACIN, input [17:0] B, BCIN, input [47:0] C, input [26:0] D, input [47:0] PCIN,
               input CLK, CEA1, CEA2, CEB1, CEB2, CEC, CED, CEAD, CEM, CEP, RSTA, RSTB, RSTC, RSTD, RSTM, RSTP,
               input CARRYIN, input [2:0] CARRYINSEL, input [3:0] ALUMODE, input [4:0] INMODE, input [8:0] OPMODE,
               output [29:0] ACOUT, output [17:0] BCOUT, output [47:0] P, PCOUT);
    parameter integer AREG = 1, BREG = 1, CREG = 1, DREG = 1, ADREG = 1, MREG = 1, PREG = 1;
    parameter integer ACASCREG = 1, BCASCREG = 1, ALUMODEREG = 1, CARRYINREG = 1, CARRYINSELREG = 1, INMODEREG = 1;
    parameter integer OPMODEREG = 1;
    parameter A_INPUT = "DIRECT", B_INPUT = "DIRECT", AMULTSEL = "A", BMULTSEL = "B", USE_MULT = "MULTIPLY";
    parameter USE_SIMD = "ONE48";
    wire strange = ALUMODEREG != 0 || CARRYINREG != 0 || CARRYINSELREG != 0 || INMODEREG != 0 || OPMODEREG != 0
        || USE_MULT != "MULTIPLY" || USE_SIMD != "ONE48" || AMULTSEL != "A" || BMULTSEL != "B" || DREG != 0
        || ADREG != 0 || ALUMODE != 0 || CARRYIN || CARRYINSEL != 0 || INMODE != 0 || D != 0 || OPMODE[8:7] != 0;
    wire [29:0] a = A_INPUT == "CASCADE" ? ACIN : A;
    wire [17:0] b = B_INPUT == "CASCADE" ? BCIN : B;
    reg [29:0] a_first = 0, a_last = 0; reg [17:0] b_first = 0, b_last = 0; reg [47:0] c_held = 0, p_held = 0;
    reg signed [44:0] m_held = 0;
    wire [29:0] a_used = AREG == 0 ? a : a_last;
    wire signed [17:0] b_used = BREG == 0 ? b : b_last;
    wire [47:0] c = CREG == 0 ? C : c_held;
    wire signed [26:0] factor = a_used[26:0];
    wire signed [44:0] m = factor * b_used;
    wire signed [47:0] wide = MREG == 0 ? m : m_held;
    wire [47:0] x = OPMODE[3:0] == 4'b0101 ? wide : 48'h5A5A, y = 0;
    wire [47:0] z = OPMODE[6:4] == 0 ? 0 : OPMODE[6:4] == 1 ? PCIN : OPMODE[6:4] == 2 ? p_held
        : OPMODE[6:4] == 3 ? c : OPMODE[6:4] == 5 ? {{17{PCIN[47]}}, PCIN[47:17]} : 48'hA5A5;
    wire [47:0] total = strange ? ~(x + z) : x + z;
    assign P = PREG == 0 ? total : p_held, PCOUT = P;
    assign ACOUT = ACASCREG == 0 ? a : ACASCREG == AREG ? a_last : a_first;
    assign BCOUT = BCASCREG == 0 ? b : BCASCREG == BREG ? b_last : b_first;
    always @(posedge CLK) begin
        if (AREG != 0 && RSTA) {a_first, a_last} <= 0; else begin
            if (AREG == 2 && CEA1) a_first <= a;
            if (AREG != 0 && CEA2) a_last <= AREG == 2 ? a_first : a;
        end
        if (BREG != 0 && RSTB) {b_first, b_last} <= 0; else begin
            if (BREG == 2 && CEB1) b_first <= b;
            if (BREG != 0 && CEB2) b_last <= BREG == 2 ? b_first : b;
        end
        if (CREG != 0) if (RSTC) c_held <= 0; else if (CEC) c_held <= C;
        if (MREG != 0) if (RSTM) m_held <= 0; else if (CEM) m_held <= m;
        if (PREG != 0) if (RSTP) p_held <= 0; else if (CEP) p_held <= total;
    end
endmodule
"""
#: Registers that a slice may have.
_STAGES = ("AREG", "BREG", "CREG", "MREG", "PREG")

#: What it adds, by the upper bits of its OPMODE.
_ADDENDS = {"000": [], "001": ["pcin"], "010": ["feedback"], "011": ["c"], "101": ["pcin>>17"]}


@pytest.fixture(scope="module")
def made() -> tuple[str, Counter]:
    return _netlist(_DESIGN)


def test_what_is_taken_in(made: tuple[str, Counter]):
    assert made[1] == {"A2 B2 M": 1, "A B M": 3, "A B M P pcin": 1, "A B2 C M P c": 2, "A B2 P feedback": 1,
                       "A2 B M": 1, "A B2 M": 1, "A B M P c": 1, "A2 B": 2, "A2 B pcin>>17": 2}


def test_same_function(made: tuple[str, Counter]):
    run_side_by_side(_DESIGN.replace("module top", f"module {WRITTEN}") + made[0] + _SLICE, name="slices",
                     inputs=_INPUTS, outputs=_OUTPUTS)


def test_a_register_wider_than_its_sum_is_an_error():
    """It has copies of the sum's sign, which Yosys leaves without a driver."""
    design = _DESIGN.replace("reg signed [35:0] m5 = 0; reg signed [36:0] total", "reg signed [44:0] m5 = 0, total")
    assert design != _DESIGN
    with pytest.raises(SynthesisError, match="check -assert"):
        _netlist(design)


_ROW = NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=4, select_fanin=4)


@pytest.mark.parametrize("component, expected", [
    # Sums of four stay packed: every other slice adds up the products of two. A packed pixel's register stays in front:
    # bits of it go to several places of its operand.
    pytest.param(MacRow(_ROW), {"B M": 2, "B M P pcin": 2}, id="row"),
    pytest.param(RequantizerLane(acc_width=27), {"A M": 1}, id="requantizer lane"),
    pytest.param(RunSpans(NpuConfig.preset(32, gather=1), depth=8), {"A B C M c": 1}, id="spans"),
])
def test_parts_of_the_machine(component: wiring.Component, expected: dict[str, int]):
    design = verilog_of(component)
    netlist, slices = _netlist(design)
    assert slices == expected
    members = list(component.signature.flatten(component))
    inputs, outputs = ({"__".join(map(str, path)): Shape.cast(member.shape).width for path, member, _ in members
                        if member.flow is flow} for flow in (In, Out))
    run_side_by_side(re.sub(r"\bmodule top\b", f"module {WRITTEN}", design) + netlist + _SLICE,
                     name=f"slices_of_{type(component).__name__}", inputs={"rst": 1, **inputs}, outputs=outputs)


def _netlist(design: str) -> tuple[str, Counter]:
    """Module `MADE`: ``design``'s top with all products in slices, all else as written; and the slices by what they
    have inside, such as ``A2 B2 M P``.
    """
    into_products = FAMILIES["xcup"].mapping("top")[:-1]
    commands = ["read_verilog design.v", HIDE_ELEMENTS, *into_products, "opt_clean -purge", f"rename top {MADE}",
                f"select -module {MADE}", "write_verilog -noattr -selected netlist.v",
                "write_json -selected netlist.json"]
    with mapped(design, "\n".join([*commands, ""]), print) as folder:
        verilog = (folder / "netlist.v").read_text()
        cells = json.loads((folder / "netlist.json").read_text())["modules"][MADE]["cells"].values()
    verilog = "/* verilator lint_off PINMISSING */\n" + verilog      # a port that is not named stands still
    return verilog, Counter(_inside(cell) for cell in cells if cell["type"] == "DSP48E2")


def _inside(cell: dict) -> str:
    def setting(name: str) -> int:
        return int(cell["parameters"][name], 2)

    registers = [f"{name[:-3]}{setting(name) if setting(name) > 1 else ''}" for name in _STAGES if setting(name)]
    added = _ADDENDS["".join(map(str, cell["connections"]["OPMODE"][6:3:-1]))]
    return " ".join([*registers, *added])
