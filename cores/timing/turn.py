"""Of the corner turn."""

from ..config import NpuConfig

__all__ = ["CornerTurnTiming", "TurnedBiasTiming"]


class CornerTurnTiming:
    """Of `CornerTurn`, cores/load/turn/corner_turn.py."""

    #: Cycles from a block's last pixel until the first beat's address can be made.
    WRITE = 2
    #: Cycles from there to the beat: addresses, memory, bytes in order.
    READ = 3
    #: Cycles from the last beat that is taken until the sums are there.
    SUMS = 2


class TurnedBiasTiming:
    """Of `TurnedBias`, cores/load/turn/turned_bias.py."""

    @staticmethod
    def latency(config: NpuConfig) -> int:
        """Cycles from a beat to the same with the sums in it: a channel each, after sum, product and difference."""
        return config.beat_bytes // 8 + 3

    @classmethod
    def cycles(cls, config: NpuConfig) -> int:
        """Cycles from a beat to the next."""
        return cls.latency(config) + 1
