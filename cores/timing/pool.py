"""Of the pool unit."""

from ..config import NpuConfig

__all__ = ["PoolUnitTiming"]


class PoolUnitTiming:
    """Of `PoolUnit`, cores/compute/pool_unit.py."""

    #: Cycles from a window's last tap until its result can be taken: tap, result, FIFO.
    LATENCY = 3
    #: Of those of anything else that the FIFO takes, too, the most.
    LONGEST = LATENCY
    #: Results that can wait to be taken.
    FIFO_DEPTH = 16
    #: Cycles from the FIFO's level to ``ready``.
    READY = 1

    @staticmethod
    def distance(config: NpuConfig) -> int:
        """Cycles between the last issue of an instruction and a different one's becoming the running one."""
        return 0
