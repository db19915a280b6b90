"""Of the load engine."""

from .lib import StreamBufferTiming

__all__ = ["LoadDispatchTiming", "LoadEngineTiming", "LoadRequesterTiming", "PaddedWalkTiming"]


class LoadEngineTiming:
    """Of `LoadEngine`, cores/load/load_engine.py."""

    #: Beats asked for and not yet taken by the writer: two of the longest bursts, or many short ones.
    FIFO_DEPTH = 512
    #: Instructions whose data is under way after the one being written.
    CONTEXTS = 8


class LoadRequesterTiming:
    """Of `LoadRequester`, cores/load/load_requester.py."""

    #: Cycles from an instruction at the queue's head until it can be taken.
    LOOK = 1
    #: Cycles from taking an instruction to its first request.
    FIRST_REQUEST = 3
    #: Cycles from a request to the next, also of the next row.
    REQUEST_CYCLES = 2
    #: Cycles from a request that is the last of its instruction until the next one can be taken.
    NEXT_INSTRUCTION = 0
    #: Cycles from a beat that leaves the data FIFO to a request for which there was no room before.
    ROOM_CYCLES = 4


class LoadDispatchTiming:
    """Of `LoadDispatch`, cores/load/load_dispatch.py."""

    LOOK = LEAVE = 1


class PaddedWalkTiming:
    """Of `PaddedWalk`, cores/load/padded_walk.py."""

    #: Cycles from a box to its first pixel: box, counters, buffer.
    LATENCY = 2 + StreamBufferTiming.LATENCY
    #: Pixels that may wait after the counters.
    AHEAD = StreamBufferTiming.DEPTH
