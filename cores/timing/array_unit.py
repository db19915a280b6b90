"""Of the units beside the multiplier array."""

from typing import ClassVar

from ..arch.isa import StepKind
from ..config import NpuConfig

__all__ = ["ArrayUnitTiming"]


class ArrayUnitTiming:
    """Of `ArrayUnit`, cores/compute/array_unit.py."""

    #: The hardware, ``module:class``: by name, as whoever plans does not import it.
    HARDWARE: ClassVar[str]
    #: Of the COMPUTEs that are its.
    KIND: ClassVar[StepKind]
    #: Whether its words may come later than those of the array; otherwise all wait for the slowest that does not. The
    #: sequencer keeps words apart of the stochastic unit alone: another that lags has to be kept apart there too.
    LAGS: ClassVar[bool] = False

    @classmethod
    def shortest_latency(cls, config: NpuConfig) -> int:
        """Cycles from the pixels of a word's last cycle to its sums where nothing makes them wait."""
        raise NotImplementedError

    @classmethod
    def rows_copied(cls, config: NpuConfig) -> int:
        """Cycles from a step's first pixels until its rows are copied."""
        return 0
