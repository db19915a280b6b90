"""Of the row unit."""

from ..config import NpuConfig
from .lib import tree_stages
from .pool import PoolUnitTiming

__all__ = ["RowUnitTiming"]


class RowUnitTiming(PoolUnitTiming):
    """Of `RowUnit`, cores/compute/rows/row_unit.py. Cycles count from that in which a pixel's block is there."""

    #: Cycle of products: pixel and centre, difference, exponential, operands.
    PRODUCT = 5
    #: Until a result can be taken: product, result, FIFO.
    LONGEST = PRODUCT + 2
    FIFO_DEPTH = 32
    #: Cycles from sums to factors: products of sums, number, places in bytes, exponent, index, table, shift; and until
    #: they are read.
    SCALARS = 9

    @classmethod
    def sums(cls, config: NpuConfig) -> int:
        """Cycle in which a block is added to its pixel's sums."""
        return cls.PRODUCT + tree_stages(config.ic_lanes)

    @classmethod
    def distance(cls, config: NpuConfig) -> int:
        """So that what a pass has made is there for the next one, and settings stay until nobody looks at them."""
        return cls.sums(config) + cls.SCALARS + 1
