"""Paths of mapped netlists: levels and delays that can be counted by hand."""

from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from cores.emit import emit_component
from gen.families.registry import FAMILIES
from gen.hw.timing import TimingReport, analyse, measure_timing
from gen.hw.yosys import SynthesisError
from gen.netlist.delays import Delays
from gen.netlist.graph import Arc, Cell, End, Netlist


class Chain(wiring.Component):
    """From ``source`` to ``sink`` whether 36 bits are all 1: two levels of LUTs with six inputs, or three."""

    def __init__(self):
        super().__init__({"data": In(36), "a": In(signed(18)), "y": Out(1), "product": Out(signed(36)), "q": Out(8),
                          "address": In(10)})

    def elaborate(self, platform):
        m = Module()
        source, sink = Signal(36, name="source"), Signal(name="sink")
        m.d.sync += [source.eq(self.data), sink.eq(source.all())]
        m.d.comb += self.y.eq(sink)
        # Registers around a multiplier are its own: no path from here.
        operand = Signal(signed(18), name="operand")
        m.d.sync += [operand.eq(self.a), self.product.eq(operand * operand)]
        m.submodules.table = table = memory.Memory(shape=8, depth=1024, init=range(256))
        read = table.read_port()
        m.d.comb += [read.addr.eq(self.address), self.q.eq(read.data)]
        return m


@pytest.fixture(scope="module")
def verilog() -> str:
    return emit_component(Chain(), name="chain")


def test_levels_of_a_chain(verilog: str):
    # By xc7's mapping; for xcup the mapper takes multiplexers inside the slice in the place of a table.
    report = measure_timing(verilog, "chain", "xc7")
    assert report.levels in (2, 3)
    path = next(path for path in report.paths if path.levels == report.levels)
    assert path.start == "source" and path.paths == 1
    delays = FAMILIES["xc7"].delays
    expected = (delays.clock_to_output + report.levels * delays.lut + (report.levels + 1) * delays.wire(1)
                + delays.setup)
    assert path.delay_ns == pytest.approx(expected, abs=1e-3)
    assert not any(path.start == "operand" for path in report.paths)
    assert sum(report.histogram.values()) > 36
    assert report.estimated_mhz == pytest.approx(1000 / report.delay_ns, abs=0.1)
    # By Yosys's library: a look-up table by a mean input, a register's output; no wires.
    assert report.cell_ns == pytest.approx(report.levels * 0.45 + 0.3, abs=0.35)


@pytest.mark.full
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_its_cells(verilog: str, family: str):
    """LUTs of four inputs make three levels, or two and a multiplexer; Cyclone V's have inverters around them."""
    report = measure_timing(verilog, "chain", family)
    assert 2 <= report.levels <= 4
    assert FAMILIES[family].delays.lut < report.delay_ns < 12
    if FAMILIES[family].synthesis.library:
        # UltraScale+ by the delays of 7 series.
        assert report.cell_ns is not None and 0.3 < report.cell_ns < (12 if family == "xcup" else report.delay_ns)
    else:
        assert report.cell_ns is None


def test_cache_and_json(verilog: str, tmp_path: Path):
    report = measure_timing(verilog, "chain", "ecp5", cache=tmp_path)
    entry, = tmp_path.iterdir()
    assert TimingReport.from_dict(report.to_dict()) == report
    assert measure_timing(verilog, "chain", "ecp5", cache=tmp_path) == report
    entry.write_text("{")
    assert measure_timing(verilog, "chain", "ecp5", cache=tmp_path) == report


def add(netlist: Netlist, family: str, kind: str, cell: Cell) -> None:
    netlist.add(cell, FAMILIES[family].timing[kind], FAMILIES[family].delays)


def netlist(**arcs: list[str]) -> Netlist:
    """A net is a letter; ``b=["a"]``: b is a LUT of a. The last one is where a path ends."""
    found = Netlist(names={ord(name): name for name in "abcdefgh"})
    for name, sources in arcs.items():
        for source in sources:
            found.follow(ord(name), Arc(ord(source), 1, 0.1))
    found.starts[ord("a")] = 0.5
    found.end(ord(list(arcs)[-1]), "sink", "D", 0.25)
    return found


def test_the_longest_way_counts():
    report = analyse(netlist(b=["a"], c=["b"], d=["a", "c"]), "xcup")
    wire = FAMILIES["xcup"].delays.wire
    assert report.levels == 3
    assert report.paths[0].through == ("a", "b", "c", "d")
    assert report.delay_ns == pytest.approx(0.5 + wire(2) + wire(1) * 3 + 3 * 0.1 + 0.25, abs=1e-3)


def test_a_loop_is_an_error():
    with pytest.raises(SynthesisError, match="combinational loop through [bc]"):
        analyse(netlist(b=["a", "c"], c=["b"]), "xcup")


def test_a_cell_that_no_family_describes_begins_and_ends_paths():
    delays = FAMILIES["xcup"].delays
    found = Netlist()
    found.add(Cell("new", {}, {"I": [1], "CLK": [2]}, {"O": [3]}), FAMILIES["xcup"].timing.get("NEW"), delays)
    assert (found.starts, found.arcs) == ({3: delays.clock_to_output}, {})
    assert found.ends == [End(1, "new", "I", delays.setup)]


def test_multiplier_paths_are_inside_between_registers():
    ends = [End(1, "m", "A", 1.6, operand=True), End(2, "p", "D", 0.05, data=True),        # inside
            End(3, "r", "D", 0.05, data=True), End(4, "m", "B", 1.6, operand=True), End(2, "p", "CE", 0.05)]
    found = Netlist(ends=list(ends), registers={1, 3}, products={2})
    found._absorb()
    assert found.ends == ends[2:]


def test_a_multiplier_whose_registers_are_not_inside():
    """ECP5: from the operand's registers through the wires and the multiplier to the product's."""
    delays = FAMILIES["ecp5"].delays
    found = Netlist(starts={1: delays.clock_to_output})
    for name, operands, product in (("first", (1, 1), 2), ("second", (1, 2), 3)):
        add(found, "ecp5", "MULT18X18D", Cell(name, {}, {"A0": [operands[0]], "B0": [operands[1]]}, {"P0": [product]}))
    found.end(3, "register", "DI", delays.setup)
    report = analyse(found, "ecp5")
    assert report.levels == 0
    assert report.delay_ns == pytest.approx(delays.clock_to_output + delays.wire(3) + 2 * delays.multiplier
                                            + 2 * delays.wire(1) + delays.setup, abs=1e-3)


@pytest.mark.parametrize("front, behind", [(True, True), (True, False), (False, True)])
def test_a_multiplier_with_registers_inside(front: bool, behind: bool):
    """ECP5: paths end at the operands and begin at the product; the product is made on the side without registers."""
    delays = FAMILIES["ecp5"].delays
    found = Netlist(starts={1: delays.clock_to_output, 4: delays.clock_to_output})
    settings = {f"REG_{stage}_CLK": "CLK0" if there else "NONE"
                for stage, there in (("INPUTA", front), ("INPUTB", front), ("OUTPUT", behind))}
    add(found, "ecp5", "MULT18X18D",
        Cell("product", settings, {"A0": [1], "B0": ["0"], "CE0": [4], "CLK0": [5]}, {"P0": [2]}))
    found.end(2, "register", "DI", delays.setup)
    assert found.starts[2] == (delays.product_output if behind else delays.multiplier)
    assert {(end.name, end.port): end.setup for end in found.ends} == {
        ("product", "A0"): delays.operand_setup if front else delays.product_setup,
        ("product", "CE0"): delays.operand_setup, ("register", "DI"): delays.setup}
    assert not found.arcs


def slice_(inside: str, delays: Delays, **connections: list) -> Netlist:
    """A slice with some registers, a net each on A, C, PCIN, CEM and P, from 1 on."""
    nets: dict[str, list] = {port: [net] for net, port in enumerate(("A", "C", "PCIN", "CEM", "P"), start=1)}
    nets |= {"OPMODE": list("101010000"), "CLK": [9], **connections}
    outputs = nets.pop("P")
    found = Netlist(starts=dict.fromkeys(range(1, 5), delays.clock_to_output))
    settings = {f"{name}REG": str(int(name in inside)) for name in "ABCDMP"}
    add(found, "xcup", "DSP48E2", Cell("product", settings, nets, {"P": outputs}))
    return found


@pytest.mark.parametrize("inside, output, operand", [
    ("", "multiplier", "multiplier"), ("A", "multiplier", "operand_setup"), ("M", "addend_output", "product_setup"),
    ("P", "product_output", "multiplier"), ("ACMP", "product_output", "operand_setup")])
def test_a_slice_with_registers_inside(inside: str, output: str, operand: str):
    """Xilinx: paths end at the first register on their way, and begin at the last; else they go through the adder."""
    delays = FAMILIES["xcup"].delays
    found = slice_(inside, delays)
    assert found.starts[5] == getattr(delays, output)
    ends = {end.port: (end.setup, end.operand, end.routed) for end in found.ends}
    expected = {"A": (getattr(delays, operand), "A" not in inside, True), "CEM": (delays.operand_setup, False, True)}
    if "P" in inside:
        expected |= {"C": (delays.operand_setup if "C" in inside else delays.addend_setup, False, True),
                     "PCIN": (delays.addend_setup, False, False)}
        assert not found.arcs
    else:
        (inner,) = found.arcs[5]
        assert {(arc.source, arc.delay, arc.routed) for arc in found.arcs[inner.source]} == {
            (2, delays.addend, True), (3, delays.addend, False)}
    assert ends == expected
    # Registers right after are the slice's own only where it has none.
    assert (5 in found.products) == (inside in ("", "A"))


def test_a_product_s_only_register_may_be_behind_the_adder():
    delays = FAMILIES["xcup"].delays
    alone = slice_("M", delays, C=["0"], PCIN=["0"], OPMODE=list("101000000"))
    assert alone.starts[5] == delays.product_output
    assert [(end.port, end.setup) for end in alone.ends if end.operand] == [("A", delays.multiplier)]
    # Not if it adds a constant.
    assert slice_("M", delays, C=["1"], PCIN=["0"], OPMODE=list("101011000")).starts[5] == delays.addend_output


def test_a_cascade_has_no_routed_wire():
    found = Netlist(starts={1: 0.1}, ends=[End(1, "m", "C", 0.2), End(1, "m", "PCIN", 0.2, routed=False)], loads={1: 2})
    assert [path.delay_ns for path in analyse(found, "xcup").paths] == pytest.approx(
        [0.3 + FAMILIES["xcup"].delays.wire(2), 0.3])


def test_unknown_family(verilog: str):
    with pytest.raises(ValueError, match=f"family must be one of {', '.join(FAMILIES)}, not 'virtex'"):
        measure_timing(verilog, "chain", "virtex")
