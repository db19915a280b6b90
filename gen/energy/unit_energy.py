"""Relative energy of arithmetic units: cells of synthesis by how often their outputs change in a simulation."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.lib import wiring

from cores.arch.stochastic import Circuit
from cores.compute.mac_array import MacArray
from cores.compute.stochastic.stochastic_unit import StochasticUnit
from cores.config import NpuConfig
from cores.emit import emit_component
from gen.files.results import kept
from gen.files.sources import sources_digest
from gen.hw.hardware import hardware_digest
from gen.hw.synth import synthesize
from gen.hw.yosys import cache_key

from .activity import Activity, measure_activity

__all__ = ["INPUTS", "INTEGER", "LANES", "PIXELS", "ROWS", "UnitEnergy", "integer_config", "measure_energy",
           "stochastic_unit"]

#: Of all units: channels of a block, pixels. Output lanes of the array, and of the others.
INPUTS, PIXELS, LANES, ROWS = 16, 2, 16, 4
INTEGER = "int8"

#: A change of a LUT's output takes 1, and so does one of a flip-flop's. A DSP slice counts as the LUTs that its two
#: products would take, 134 each as Yosys maps 8 x 8 bits: more than it does take, so the array is not flattered.
_DSP_LUTS = 268
#: A flip-flop's clock, each cycle: two edges on a net of its own. Assumed; docs/energy.md says what depends on it.
_CLOCK = 0.1

#: Of the simulation: words of so many bits, the first of them not counted.
_WORDS, _BITS = 12, 32
_SEED = 0
#: What a measurement depends on beside the hardware.
_SOURCES = ("gen/energy",)


@dataclass(frozen=True)
class UnitEnergy:
    """``products``: that a unit makes in a cycle, of a bit of each stream, or whole ones. Of what is simulated, the
    mean changes of a bit in a cycle are ``registers`` and ``wires``.
    """

    unit: str
    products: int
    lut: float
    ff: float
    dsp: float
    registers: float
    wires: float

    @property
    def per_cycle(self) -> float:
        """At 1 V; the unit is a change of a LUT's output."""
        return (self.lut + _DSP_LUTS * self.dsp) * self.wires + self.ff * (self.registers + _CLOCK)

    def per_product(self, bits: int = 1) -> float:
        """Of streams of so many bits."""
        return self.per_cycle * bits / self.products


def stochastic_unit(circuit: Circuit) -> StochasticUnit:
    return StochasticUnit(circuit=circuit, inputs=INPUTS, rows=ROWS, pixels=PIXELS)


def integer_config() -> NpuConfig:
    """Of the multiplier array that units are compared with."""
    return NpuConfig(oc_lanes=LANES, ic_lanes=INPUTS, nnz_lanes=4, pixel_lanes=PIXELS)


def measure_energy(circuit: Circuit | None, family: str, cache: Path,
                   progress: Callable[[str], None] = lambda step: None) -> UnitEnergy:
    """Of a circuit's unit, or of the multiplier array; kept in ``cache``.

    Raises what `gen.hw.synth.synthesize` does.
    """
    name = INTEGER if circuit is None else circuit.label

    def make() -> UnitEnergy:
        progress(f"{name}: area")
        unit, cycles, products = _integer() if circuit is None else _stochastic(circuit)
        totals = synthesize(emit_component(unit), "top", family, cache=cache / "synth").totals
        progress(f"{name}: changes of its bits")
        found = _measured(circuit, cycles)
        area = {resource: totals.get(resource, 0) for resource in ("lut", "ff", "dsp")}
        return UnitEnergy(name, products, **area, registers=found.registers, wires=found.wires)

    key = cache_key(hardware_digest(family), name, sources_digest(*_SOURCES))
    return kept(cache / "energy", f"{key}.kept", lambda values: UnitEnergy(**values), make)


_Cycles = list[Mapping[str, Any]]


def _measured(circuit: Circuit | None, cycles: _Cycles) -> Activity:
    # Anew: a component is elaborated once.
    unit: wiring.Component = MacArray(integer_config()) if circuit is None else stochastic_unit(circuit)
    return measure_activity(unit, cycles, warm=_BITS)


def _values(rng: np.random.Generator, *, activations: int, weights: int) -> tuple[np.ndarray, np.ndarray]:
    """int8: activations from 0 on, as ReLU leaves them, and weights of both signs, a third of the range."""
    return (rng.integers(0, 128, (activations, INPUTS)).astype(np.int8),
            rng.integers(-48, 49, (weights, INPUTS)).astype(np.int8))


def _stochastic(circuit: Circuit) -> tuple[wiring.Component, _Cycles, int]:
    return stochastic_unit(circuit), list(_stochastic_cycles()), INPUTS * ROWS * PIXELS


def _stochastic_cycles() -> Iterator[Mapping[str, Any]]:
    rng, log = np.random.default_rng(_SEED), _BITS.bit_length() - 1
    for _ in range(_WORDS):
        pixels, weights = _values(rng, activations=PIXELS, weights=ROWS)
        for cycle in range(_BITS):
            ports: dict[str, Any] = {"start": cycle == 0, "load": cycle == 1}
            if cycle == 0:
                ports |= {"length": log, "made": log}
            if cycle == 1:
                ports |= {"pixels": pixels.tolist(), "weights": weights.tolist()}
            yield ports


def _integer() -> tuple[wiring.Component, _Cycles, int]:
    config = integer_config()
    return MacArray(config), list(_integer_cycles(config)), config.macs


def _integer_cycles(config: NpuConfig) -> Iterator[Mapping[str, Any]]:
    """Pixels in every cycle, weights in every eighth, as in a tile of 16 pixels."""
    rng, lanes = np.random.default_rng(_SEED), config.oc_lanes * config.nnz_lanes
    for cycle in range(_WORDS * _BITS // 2):
        pixels, weights = _values(rng, activations=config.banks, weights=lanes // INPUTS)
        step = cycle % 8
        ports: dict[str, Any] = {"pixels": pixels.tolist(), "load_indices": step == 0, "load_weights": step == 1}
        if step == 0:
            ports |= {"weights": weights.ravel().tolist(),
                      "indices": rng.integers(0, config.select_fanin, lanes).tolist()}
        yield ports
