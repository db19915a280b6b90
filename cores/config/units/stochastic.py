"""Stochastic layers: products and sums of streams of bits."""

from collections.abc import Iterator
from dataclasses import dataclass

from cores.arch.isa import StepKind
from cores.arch.stochastic import Circuit
from cores.arch.stochastic import sum_bits as stream_sum_bits
from cores.config.units.base import Unit
from cores.config.units.winograd import WinogradSettings

__all__ = ["UNIT", "StochasticSettings"]


@dataclass(frozen=True, kw_only=True)
class StochasticSettings(WinogradSettings):

    #: Output lanes of the stochastic unit, each with streams of ic_lanes channels of each of ``pixel_lanes`` pixels; 0:
    #: no unit.
    stochastic_rows: int = 0
    #: How they add the products of their streams: a `cores.arch.stochastic.Circuit`.
    stochastic_circuit: int = 0
    #: Bits of a stream that are made in a cycle; 0 without the unit.
    stochastic_bits: int = 0

    @property
    def circuit(self) -> Circuit:
        """Of the stochastic unit."""
        return Circuit(self.stochastic_circuit)

    @property
    def sum_bits(self) -> int:
        streams = stream_sum_bits(self.ic_lanes) if self.stochastic_rows else 0
        return max(super().sum_bits, streams)

    @property
    def stochastic_groups(self) -> int:
        return self.unit_groups(StepKind.STOCHASTIC)

    def rows_by_kind(self) -> Iterator[tuple[StepKind, int]]:
        yield from super().rows_by_kind()
        yield StepKind.STOCHASTIC, self.stochastic_rows

    def check(self) -> None:
        super().check()
        if not self.require_rows("stochastic_rows"):
            for name in ("stochastic_circuit", "stochastic_bits"):
                self.require(name, getattr(self, name) == 0, "be 0 without stochastic_rows")
            return
        self.require("stochastic_rows", self.winograd != 2, "be 0 with winograd=2, whose activations have 10 bits")
        self.require("stochastic_rows", not self.binary_engine, "be 0 with binary_engine=1, which shares no sums")
        self.require("stochastic_circuit", self.stochastic_circuit in set(Circuit),
                     "be " + ", ".join(f"{circuit.value} ({circuit.label})" for circuit in Circuit))
        bits = self.stochastic_bits
        self.require("stochastic_bits", bits in (1, 2, 4, 8), "be 1, 2, 4 or 8 with stochastic_rows")
        self.require("stochastic_bits", bits == 1 or not self.circuit.serial,
                     f"be 1 with {self.circuit.label}, whose bits depend on those before")


#: LUTs of a unit of each circuit against those of AND-LOOP (docs/stochastic.md, Cost).
_LUTS = {Circuit.XNOR_MUX: 0.9, Circuit.AND_SEP_OR: 0.9, Circuit.AND_SEP_COUNTER: 1.4, Circuit.UGEMM: 2.3,
         Circuit.AND_ACC: 1.5, Circuit.AND_LOOP: 1.0}


def _area(config: StochasticSettings) -> tuple[float]:
    """Bits of products in a cycle."""
    if not config.stochastic_rows:
        return (0,)
    bits = config.stochastic_rows * config.pixel_lanes * config.ic_lanes * config.stochastic_bits
    return (bits * _LUTS[config.circuit],)


UNIT = Unit(
    name="stochastic",
    settings=StochasticSettings,
    fields=("stochastic_rows", "stochastic_circuit", "stochastic_bits"),
    choices=frozenset({"stochastic_circuit"}),
    standard=lambda c: {"stochastic_rows": max(1, c.oc_lanes // 4), "stochastic_circuit": int(Circuit.AND_LOOP)},
    area={"compute": _area},
)
