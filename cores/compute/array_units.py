"""The hardware of the units beside the multiplier array."""

from ..config import NpuConfig
from ..lib.hardware import hardware_of
from ..timing import array_units
from .array_unit import ArrayUnit

__all__ = ["units_of"]


def units_of(config: NpuConfig) -> tuple[type[ArrayUnit], ...]:
    """Those that a machine has; `cores.timing.array_units` registers them."""
    return tuple(hardware_of(unit, unit.HARDWARE, ArrayUnit) for unit in array_units.units_of(config))
