"""Area reports on a design whose cells can be counted by hand."""

import dataclasses
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from cores.emit import emit_component
from gen.families.registry import FAMILIES
from gen.hw.synth import synthesize
from gen.hw.yosys import SynthesisError


class Product(wiring.Component):
    def __init__(self):
        super().__init__({"a": In(signed(27)), "b": In(signed(18)), "y": Out(signed(45))})

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.y.eq(self.a * self.b)
        return m


class Buffer(wiring.Component):
    def __init__(self):
        super().__init__({"read": In(12), "write": In(12), "data": In(16), "enable": In(1), "q": Out(16)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = memory.Memory(shape=16, depth=4096, init=[])
        read, write = inner.read_port(), inner.write_port()
        m.d.comb += [read.addr.eq(self.read), self.q.eq(read.data), write.addr.eq(self.write),
                     write.data.eq(self.data), write.en.eq(self.enable)]
        return m


class Pair(wiring.Component):
    """A product, a memory of 64 Kibit and 16 exclusive-ors between them, with registers after them."""

    def __init__(self):
        super().__init__({"a": In(signed(27)), "b": In(signed(18)), "enable": In(1),
                          "y": Out(16), "p": Out(signed(45))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.product = product = Product()
        m.submodules.buffer = buffer = Buffer()
        m.d.comb += [product.a.eq(self.a), product.b.eq(self.b), self.p.eq(product.y),
                     buffer.read.eq(self.a), buffer.write.eq(self.b), buffer.data.eq(self.b),
                     buffer.enable.eq(self.enable)]
        y = Signal(16)
        m.d.sync += y.eq(buffer.q ^ self.a)
        m.d.comb += self.y.eq(y)
        return m


#: A register whose name is that of another one's first bit.
_ELEMENT = """module npu (input clk, input [3:0] a, input b, output [3:0] y);
  reg [3:0] s;
  reg [3:0] \\s[0] ;
  always @(posedge clk) begin
    s <= a ^ {4{b}};
    \\s[0] <= a & \\s[0] ;
  end
  assign y = s ^ \\s[0] ;
endmodule
"""


@pytest.fixture(scope="module")
def verilog() -> str:
    return emit_component(Pair(), name="pair")


def test_counts_per_component(verilog: str):
    report = synthesize(verilog, "pair", "xcup")
    # The product's register is in its slice.
    assert report.totals == {"lut": 16, "ff": 16, "dsp": 1, "bram36": 2}
    assert report.components["buffer"] == {"lut": 0, "ff": 0, "dsp": 0, "bram36": 2}
    assert report.components["product"]["dsp"] == 1
    assert report.components["(top)"] == {"lut": 16, "ff": 16, "dsp": 0, "bram36": 0}
    assert report.cells["DSP48E2"] == 1
    assert report.to_dict()["lut"] == 16


@pytest.mark.full
@pytest.mark.parametrize("family", FAMILIES)
def test_families_count_every_kind_of_resource(family: str, verilog: str):
    totals = synthesize(verilog, "pair", family).totals
    assert tuple(totals) == FAMILIES[family].resources
    assert all(totals.values()), f"{family}: a resource has no cells: {totals}"


def test_cache_answers_only_for_the_same_design(verilog: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls = []

    def statistics(*arguments):
        calls.append(arguments)
        return {"pair": {"LUT2": len(calls)}}

    monkeypatch.setattr("gen.hw.synth._statistics", statistics)
    first = synthesize(verilog, "pair", "xcup", cache=tmp_path)
    assert synthesize(verilog, "pair", "xcup", cache=tmp_path) == first and len(calls) == 1
    assert synthesize(verilog + "\n", "pair", "xcup", cache=tmp_path).totals["lut"] == 2
    next(tmp_path.glob("*.kept")).write_text("{")
    assert dataclasses.is_dataclass(synthesize(verilog, "pair", "xcup", cache=tmp_path))


@pytest.mark.synth
def test_names_like_elements_of_arrays():
    assert synthesize(_ELEMENT, "npu", "xcup").totals == {"lut": 12, "ff": 8, "dsp": 0, "bram36": 0}


@pytest.mark.synth
def test_registers_inside_of_multipliers_are_not_counted():
    """ECP5, where Yosys leaves 32 of them outside; in a component as in the top module."""
    text = """module product (input clk, input signed [7:0] a, input signed [7:0] b, output reg signed [15:0] y);
  reg signed [7:0] a0, b0;
  always @(posedge clk) begin
    a0 <= a;
    b0 <= b;
    y <= a0 * b0;
  end
endmodule
module npu (input clk, input signed [7:0] a, input signed [7:0] b, output [15:0] y);
  product product (
    .clk(clk), .a(a), .b(b), .y(y)
  );
endmodule
"""
    report = synthesize(text, "npu", "ecp5")
    assert report.totals == report.components["product"] == {"lut": 0, "ff": 0, "dsp": 1, "ebr": 0}
    assert report.cells == {"MULT18X18D": 1}


def test_errors_are_one_line(verilog: str):
    with pytest.raises(ValueError, match=f"family must be one of {', '.join(FAMILIES)}, not 'virtex'"):
        synthesize(verilog, "pair", "virtex")
    with pytest.raises(SynthesisError, match="the Verilog has no module 'npu'"):
        synthesize(verilog, "npu", "xcup")
    with pytest.raises(SynthesisError, match=r"yosys failed: .*ERROR.*") as caught:
        synthesize("module npu (a);\n  inptu a;\nendmodule\n", "npu", "xcup")
    assert "\n" not in str(caught.value)
