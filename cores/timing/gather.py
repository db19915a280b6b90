"""Of gathered rows."""

from .lib import StreamBufferTiming
from .load_path import LoadPathTiming

__all__ = ["ByteWindowTiming", "GatheredPathTiming", "RunGathererTiming", "RunSettingsTiming", "RunWalkTiming"]


class ByteWindowTiming:
    """Of `ByteWindow`, cores/load/gather/byte_window.py."""

    SLOTS = 4
    #: Cycles from a run to its entry: slot of each byte known and the beat there, bytes chosen, bytes in their place.
    LATENCY = 3


class RunGathererTiming:
    """Of `RunGatherer`, cores/load/gather/run_gatherer.py."""

    LATENCY = ByteWindowTiming.LATENCY


class RunSettingsTiming:
    """Of `RunSettings`, cores/load/gather/run_settings.py."""

    #: Cycles in which what follows from the span of a LOAD_GATHER is being made.
    GATHER_CYCLES = 1


class RunWalkTiming:
    """Of `RunWalk`, cores/load/gather/run_walk.py."""

    #: Cycles from a box to its first run: box, counters, buffer.
    LATENCY = 2 + StreamBufferTiming.LATENCY
    #: Runs that may wait after the counters.
    AHEAD = StreamBufferTiming.DEPTH


class GatheredPathTiming(LoadPathTiming):
    """Of `GatheredPath`, cores/load/gather/gathered_path.py."""

    HARDWARE = "cores.load.gather.gathered_path:GatheredPath"
    LATENCY = RunGathererTiming.LATENCY
    #: Cycles from a box to the first that its first run can set out in: its walk.
    BOX_CYCLES = RunWalkTiming.LATENCY + 1
    #: Cycles from a box's last run to the first one in which something may be set.
    DRAIN_CYCLES = 1
