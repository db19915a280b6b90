"""The units beside the multiplier array, by their kinds of steps."""

from collections.abc import Mapping

from ..arch.isa import StepKind
from ..config import NpuConfig
from .array_unit import ArrayUnitTiming
from .binary import BinaryWordsTiming
from .stochastic import StochasticWordsTiming

__all__ = ["ARRAY_UNITS", "units_of"]

ARRAY_UNITS: Mapping[StepKind, type[ArrayUnitTiming]] = {
    unit.KIND: unit for unit in (BinaryWordsTiming, StochasticWordsTiming)}


def units_of(config: NpuConfig) -> tuple[type[ArrayUnitTiming], ...]:
    """Those that a machine has."""
    return tuple(ARRAY_UNITS[kind] for kind in config.unit_rows)
