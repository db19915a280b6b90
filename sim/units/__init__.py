"""What optional units compute in the functional simulator, a module each, and their registration."""

from collections.abc import Mapping

from cores.arch.isa import StepKind
from sim.units import binary, stochastic
from sim.units.array import UnitModel

__all__ = ["ARRAY_UNITS", "UnitModel"]

#: The units beside the multiplier array, by their kinds of steps.
ARRAY_UNITS: Mapping[StepKind, UnitModel] = {model.kind: model for model in (binary.MODEL, stochastic.MODEL)}
