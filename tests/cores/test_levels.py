"""LUT levels of the paths of every engine, mapped flat: the limits of docs/timing.md."""

import pytest
from amaranth.lib import wiring

from boards.registry import get_board
from cores.arch.stochastic import Circuit
from cores.bus.read_engine import ReadEngine
from cores.bus.write_engine import WriteEngine
from cores.compute.compute_engine import ComputeEngine
from cores.compute.engine_pair import EnginePair
from cores.compute.stochastic.stochastic_unit import StochasticUnit
from cores.config import FEATURES
from cores.control.instruction_fetch import InstructionFetch
from cores.control.machine_control import MachineControl
from cores.control.performance_counters import PerformanceCounters
from cores.control.register_file import RegisterFile
from cores.emit import emit_component, emit_verilog
from cores.load.load_engine import LoadEngine
from cores.store.store_engine import StoreEngine
from gen.hw.timing import TimingReport, measure_timing
from sim.folders import cache_folder

#: Of an engine by itself in a small machine: without optional units, and with all of them. The aim is 5; docs/timing.md
#: says what is left.
LIMITS = {
    InstructionFetch: (4, 6), ReadEngine: (3, 3), WriteEngine: (5, 5), RegisterFile: (5, 5),
    LoadEngine: (3, 5), ComputeEngine: (3, 6), StoreEngine: (4, 5), EnginePair: (None, 6),
}
#: Of the whole machine: MACs, with all units?
MACHINE = {(64, False): 4, (64, True): 5, (256, False): 4, (256, True): 5}

_BOARD = get_board("zu3eg")


def config(macs: int, *, engine: bool = False):
    plain = _BOARD.config(macs)
    # Beside a binary engine there is no stochastic unit.
    names = [name for name in FEATURES if not (engine and name == "stochastic")]
    return _BOARD.config(macs, **plain.feature_fields(names), binary_engine=int(engine))


def timing(component: wiring.Component) -> TimingReport:
    return measure_timing(emit_component(component, name="top"), "top", "xcup", cache=cache_folder() / "synth")


def worst(report: TimingReport) -> str:
    """What to look at when a limit is passed."""
    path = max(report.paths, key=lambda path: path.levels)
    return f"{path.levels} levels from {path.start} to {path.end}, {path.paths} paths: {' > '.join(path.through)}"


def _cases():
    """Two plain engines in `make test`, the rest with ``full``: each takes half a minute of a processor and more."""
    for engine, limits in LIMITS.items():
        for units, limit in enumerate(limits):
            if limit is not None:
                quick = not units and engine is InstructionFetch
                marks = () if quick else pytest.mark.full
                yield pytest.param(engine, bool(units), limit, marks=marks,
                                   id=f"{engine.__name__}-{'all' if units else 'plain'}")


@pytest.mark.parametrize("engine, units, limit", list(_cases()))
def test_engines(engine, units, limit):
    machine = config(32, engine=engine is EnginePair) if units else _BOARD.config(32)
    report = timing(engine(machine))
    assert report.levels <= limit, worst(report)


@pytest.mark.parametrize("part, parameters", [
    (MachineControl, {"sources": 6}), pytest.param(PerformanceCounters, {}, marks=pytest.mark.full)])
def test_parts_of_the_control(part, parameters):
    report = timing(part(**parameters))
    assert report.levels <= 4, worst(report)


@pytest.mark.full
@pytest.mark.parametrize("circuit", Circuit, ids=lambda circuit: circuit.label)
def test_stochastic_units(circuit):
    report = timing(StochasticUnit(circuit=circuit, inputs=16, rows=2, pixels=1))
    assert report.levels <= 5, worst(report)


@pytest.mark.full
@pytest.mark.parametrize("macs, units", MACHINE)
def test_machine(macs, units):
    machine = config(macs) if units else _BOARD.config(macs)
    report = measure_timing(emit_verilog(machine), "npu", "xcup", cache=cache_folder() / "synth")
    assert report.levels <= MACHINE[macs, units], worst(report)
