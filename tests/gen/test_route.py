"""Place and route: what is read from nextpnr's report, and a small design for real."""

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from boards.registry import BOARDS
from cores.emit import emit_component
from gen.hw.flat import flat_design
from gen.hw.route import RouteReport, place_and_route, read_report
from gen.hw.yosys import SynthesisError


class Adder(wiring.Component):
    def __init__(self):
        super().__init__({"a": In(24), "y": Out(24)})

    def elaborate(self, platform):
        m = Module()
        a = Signal(24, name="a_register")
        m.d.sync += [a.eq(self.a), self.y.eq(self.y + a)]
        return m


def step(kind: str, delay: float, net: str = "") -> dict:
    return {"type": kind, "delay": delay, **({"net": net} if net else {})}


def test_the_slowest_clock_and_its_path():
    report = {
        "fmax": {"$glbnet$clk": {"achieved": 80.04, "constraint": 60},
                 "other": {"achieved": 200.0, "constraint": 100.3}},
        "critical_paths": [
            {"from": "<async>", "to": "posedge $glbnet$clk", "path": [step("routing", 90.0, "pin")]},
            {"from": "posedge $glbnet$clk", "to": "posedge $glbnet$clk", "path": [
                step("clk-to-q", 0.5), step("routing", 2.25, "a"), step("logic", 0.25), step("routing", 1.0, "b"),
                step("routing", 1.0, "b"), step("setup", 0.0)]},
        ],
        "utilization": {"TRELLIS_FF": {"used": 48, "available": 83640}, "DP16KD": {"used": 0, "available": 208}},
    }
    assert read_report(report, "ecp5") == RouteReport("ecp5", 80.0, 0.75, 4.25, ("a", "b"), {"TRELLIS_FF": 48})
    assert read_report(report, "ecp5", target_mhz=100) == RouteReport("ecp5", 200.0, 0, 0, (), {"TRELLIS_FF": 48})
    with pytest.raises(SynthesisError, match="no clock of 75 MHz"):
        read_report(report, "ecp5", target_mhz=75)


def test_a_path_is_told_by_its_signals():
    """Not by each cell of a carry chain."""
    path = ("lane.narrow[13]", "lane.product_TRELLIS_FF_Q_43_DI_CCU2C_S1_A1_MULT18X18D_P25_P2",
            "lane.product_TRELLIS_FF_Q_43_DI_CCU2C_S1$CCU2_FCI_INT", "$nextpnr_CCU2C_317$CIN", "run_LUT4_B_Z[2]")
    report = RouteReport("ecp5", 80.0, 0.5, 4.25, path, {})
    assert report.critical == "0.50 ns of logic and 4.25 ns of wires through lane.narrow[13] > lane.product > run"


def test_a_board_without_the_tool():
    with pytest.raises(ValueError, match="zu3eg has no nextpnr"):
        with flat_design("", "top", "xcup") as design:
            place_and_route(design, BOARDS["zu3eg"])


@pytest.mark.full
def test_a_small_design(tmp_path):
    verilog = emit_component(Adder(), name="top")
    with flat_design(verilog, "top", "ecp5") as design:
        report = place_and_route(design, BOARDS["ecp5"], cache=tmp_path)
    assert 100 < report.mhz < 600 and report.used["TRELLIS_FF"] == 48 and report.path
    with flat_design(verilog, "top", "ecp5") as design:
        assert place_and_route(design, BOARDS["ecp5"], cache=tmp_path) == report
