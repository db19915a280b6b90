"""Which pool unit a machine has: its own, or one that computes more."""

from ..config import NpuConfig, part_of
from .pool import PoolUnitTiming
from .rows import RowUnitTiming

__all__ = ["pool_of"]


def pool_of(config: NpuConfig) -> type[PoolUnitTiming]:
    """Of the machine."""
    return part_of(config, PoolUnitTiming, {"rows": RowUnitTiming})
