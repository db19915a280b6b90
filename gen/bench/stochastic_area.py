"""What stochastic units cost beside the multiplier array and the binary unit: area, levels, cycles of a product."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from amaranth.lib import wiring

from cores.arch.stochastic import Circuit
from cores.compute.binary.binary_unit import BinaryUnit
from cores.compute.mac_array import MacArray
from cores.emit import emit_component
from gen.energy.unit_energy import INPUTS, PIXELS, ROWS, integer_config, stochastic_unit
from gen.hw.synth import synthesize
from gen.hw.timing import measure_timing

__all__ = ["LENGTHS", "UnitRow", "measure_area"]

#: Of the streams for which cycles are reckoned.
LENGTHS = (32, 128, 256)


@dataclass(frozen=True)
class UnitRow:
    """A unit as Yosys maps it. ``cycles``: by stream length, of one product in the whole unit."""

    unit: str
    resources: dict[str, float]
    levels: int
    cycles: dict[int, float]


def _units() -> Iterator[tuple[str, wiring.Component, float, bool]]:
    """Each unit's name, itself, how many products it makes a cycle, of a stream's bits or whole ones."""
    config = integer_config()
    binary = dataclasses.replace(config, gather=1, binary_rows=ROWS)
    yield "int8, 128 MACs", MacArray(config), config.macs, False
    yield ("binary", BinaryUnit(binary, latency=BinaryUnit.shortest_latency(binary)),
           binary.binary_macs, False)
    for circuit in Circuit:
        yield circuit.label, stochastic_unit(circuit), INPUTS * ROWS * PIXELS, True


def measure_area(family: str, cache: Path, progress: Callable[[str], None] = lambda step: None) -> Iterator[UnitRow]:
    """Units of two pixels: the array's of 16 output lanes, others of 4, and a bit of each stream a cycle.

    Raises what `gen.hw.synth.synthesize` does.
    """
    for name, unit, products, streams in _units():
        progress(name)
        verilog = emit_component(unit)
        report = synthesize(verilog, "top", family, cache=cache)
        levels = measure_timing(verilog, "top", family, cache=cache).levels
        yield UnitRow(name, report.totals, levels,
                      {length: (length if streams else 1) / products for length in LENGTHS})
