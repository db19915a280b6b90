"""The hardware of the units beside the multiplier array."""

from importlib import import_module

from ..config import NpuConfig
from ..timing import array_units
from .array_unit import ArrayUnit

__all__ = ["units_of"]


def units_of(config: NpuConfig) -> tuple[type[ArrayUnit], ...]:
    """Those that a machine has; `cores.timing.array_units` registers them."""
    found = []
    for timing in array_units.units_of(config):
        module, name = timing.HARDWARE.split(":")
        unit = getattr(import_module(module), name)
        assert issubclass(unit, ArrayUnit) and issubclass(unit, timing), unit
        found.append(unit)
    return tuple(found)
