"""Of the binary unit."""

from ..arch.isa import StepKind
from ..config import NpuConfig
from .array_unit import ArrayUnitTiming

__all__ = ["ADDITIONS", "BinaryRowTiming", "BinaryUnitTiming", "BinaryWordsTiming", "FIRST_ONES", "ONES", "adders"]

#: Ones that one addition takes: five into the adder's own look-up tables and one as its carry.
ONES = 6
#: Ones that a look-up table for each digit counts: what a chain of additions may begin with.
FIRST_ONES = 3
#: Additions between two registers.
ADDITIONS = 2


def adders(ones: int) -> int:
    """How many additions count ``ones`` ones."""
    return -(-(ones - 1) // ONES)


class BinaryRowTiming:
    """Of `BinaryRow`, cores/compute/binary/binary_row.py."""

    @staticmethod
    def _adder_stages(config: NpuConfig) -> int:
        # A chain for each half, then the halves' sum.
        return -(-adders(config.binary_bits // 4 - FIRST_ONES + 1) // ADDITIONS) + 1

    @classmethod
    def latency(cls, config: NpuConfig) -> int:
        """Cycles: majorities, then a few additions in each."""
        return 1 + cls._adder_stages(config)


class BinaryUnitTiming:
    """Of `BinaryUnit`, cores/compute/binary/binary_unit.py."""

    @classmethod
    def shortest_latency(cls, config: NpuConfig) -> int:
        """Cycles from ``pixels`` to ``counts`` where nothing makes them wait."""
        return 1 + BinaryRowTiming.latency(config)


class BinaryWordsTiming(ArrayUnitTiming):
    """Of `BinaryWords`, cores/compute/binary/binary_words.py."""

    HARDWARE = "cores.compute.binary.binary_words:BinaryWords"
    KIND = StepKind.BINARY

    @classmethod
    def shortest_latency(cls, config: NpuConfig) -> int:
        return BinaryUnitTiming.shortest_latency(config)
