"""Activity by hand, and energies made of areas and activities."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cores.arch.registers import address_of
from cores.arch.stochastic import Circuit
from cores.config import NpuConfig
from cores.control.register_file import RegisterFile
from gen.energy import unit_energy
from gen.energy.activity import measure_activity
from gen.energy.battery import SWITCH_CYCLES
from gen.energy.candidate import Candidate, shortest
from gen.energy.unit_energy import INTEGER, UnitEnergy, measure_energy
from gen.stochastic.backbone import Backbone
from tests.cores.simulation import Bench


class Toggler(wiring.Component):
    """A register of four bits of which two change in every cycle, two wires after them, and a part with the same."""

    def __init__(self, *, inner: bool = False):
        self.inner = inner
        super().__init__({"flip": In(1), "o": Out(2)})

    def elaborate(self, platform):
        m = Module()
        held = Signal(4)
        m.d.sync += held.eq(held ^ self.flip.replicate(2))
        m.d.comb += self.o.eq(held[1:3])
        if not self.inner:
            m.submodules.inner = inner = Toggler(inner=True)
            m.d.comb += inner.flip.eq(self.flip)
        return m


def test_changes_of_bits():
    found = measure_activity(Toggler(), [{"flip": 1}] * 21)
    assert found.registers == pytest.approx(0.5)
    # `o` of both, of whose bits one changes, and the inner `flip`, which stays.
    assert found.wires == pytest.approx(2 / 5)
    assert measure_activity(Toggler(), [{"flip": 0}] * 9 + [{"flip": 1}] * 10, warm=9).registers == pytest.approx(0.5)
    assert measure_activity(Toggler(), [{"flip": 0}] * 9).registers == 0
    with pytest.raises(ValueError, match="cycles must be more than"):
        measure_activity(Toggler(), [{}] * 5, warm=4)


def test_energy_of_cells_and_changes():
    unit = UnitEnergy("x", products=8, lut=100, ff=50, dsp=2, registers=0.2, wires=0.5)
    assert unit.per_cycle == pytest.approx((100 + 2 * 268) * 0.5 + 50 * (0.2 + 0.1))
    assert unit.per_product(32) == pytest.approx(unit.per_cycle * 4)


@pytest.mark.slow
@pytest.mark.parametrize("circuit", [None, Circuit.XNOR_MUX])
def test_units_are_measured_once(circuit: Circuit | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A small simulation of the unit itself, and an area that stands in for Yosys's."""
    asked = []
    monkeypatch.setattr(unit_energy, "_WORDS", 3)
    monkeypatch.setattr(unit_energy, "_BITS", 8)
    monkeypatch.setattr(unit_energy, "emit_component", lambda unit: asked.append(unit) or "")
    monkeypatch.setattr(unit_energy, "synthesize",
                        lambda *_, **__: SimpleNamespace(totals={"lut": 10, "ff": 4, "dsp": 1}))
    found = measure_energy(circuit, "xcup", tmp_path)
    assert (found.unit, found.products) == (INTEGER if circuit is None else "xnor-mux", 128)
    assert 0.02 < found.registers < 0.6 and 0.1 < found.wires < 0.7
    assert measure_energy(circuit, "xcup", tmp_path) == found and len(asked) == 1
    monkeypatch.setattr(unit_energy, "sources_digest", lambda *_: "changed")
    assert measure_energy(circuit, "xcup", tmp_path) == found and len(asked) == 2


def test_a_candidate_of_a_machine():
    """Of 256 MACs: 8 rows of 16 inputs for 2 pixels, twice the unit that is measured."""
    unit = UnitEnergy("and-loop", products=128, lut=100, ff=0, dsp=0, registers=0, wires=1)
    one = Candidate(Backbone("784-200-32-10"), Circuit.AND_LOOP, unit, NpuConfig.preset(256))
    assert one.per_cycle == pytest.approx(200)
    # Seven tiles of 32 outputs, 49 blocks, four steps, one word of so many bits; 13 blocks; 2 blocks.
    assert one.cycles(32) == (7 * 49 + 13 + 2) * 4 * 32


def test_shortest_lengths():
    accuracy = {8: 0.5, 16: 0.92, 32: 0.91, 64: 0.96}
    assert shortest(accuracy, (0.95, 0.9, 0.4)) == (64, 16, 8)
    assert shortest(accuracy, (0.97,)) == (64,)


def test_a_switch_is_a_register_write():
    """From the cycle in which address and data are offered to that of the answer."""
    file = RegisterFile(NpuConfig.preset(16))
    bench = Bench(file)

    async def write(ctx):
        bus = file.bus
        for port, value in ((bus.awaddr, address_of("timeout")), (bus.wdata, 77), (bus.wstrb, 15), (bus.bready, 1),
                            (bus.awvalid, 1), (bus.wvalid, 1)):
            ctx.set(port, value)
        cycles = 0
        while not ctx.get(bus.bvalid):
            await ctx.tick()
            cycles += 1
        assert ctx.get(file.timeout) == 77 and cycles + 1 == SWITCH_CYCLES
    bench.run(write)
