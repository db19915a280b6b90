"""Of the input buffer and the accumulators."""

from ..config import NpuConfig
from .load_paths import path_of

__all__ = ["AccumulatorsTiming", "InputBufferTiming", "write_latency"]


def write_latency(config: NpuConfig) -> int:
    """Cycles from an entry's setting out until it is written."""
    return path_of(config).LATENCY


class InputBufferTiming:
    """Of `InputBuffer`, cores/buffers/input_buffer.py."""

    #: Cycles from an address to its entry: 1, or more with registers after the memories. All stages follow from it.
    LATENCY = 2


class AccumulatorsTiming:
    """Of `Accumulators`, cores/buffers/accumulators.py."""

    #: Cycles from the address to the sums it belongs to: memory, register.
    READ_AHEAD = 2
    #: Cycles from an address to the first in which the word can be used again.
    HAZARD = 4
    #: Cycles from the address until the word can be read by the store engine.
    LATENCY = 4
