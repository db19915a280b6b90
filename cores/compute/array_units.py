"""The units beside the multiplier array, by their kinds of steps."""

from collections.abc import Mapping

from ..arch.isa import StepKind
from ..config import NpuConfig
from ..timing.array_units import ARRAY_UNITS as TIMINGS
from .array_unit import ArrayUnit
from .binary.binary_words import BinaryWords
from .stochastic.stochastic_words import StochasticWords

__all__ = ["ARRAY_UNITS", "units_of"]

ARRAY_UNITS: Mapping[StepKind, type[ArrayUnit]] = {unit.KIND: unit for unit in (BinaryWords, StochasticWords)}
assert ARRAY_UNITS.keys() == TIMINGS.keys(), "a unit is named in cores/timing/array_units.py too"


def units_of(config: NpuConfig) -> tuple[type[ArrayUnit], ...]:
    """Those that a machine has."""
    return tuple(ARRAY_UNITS[kind] for kind in config.unit_rows)
