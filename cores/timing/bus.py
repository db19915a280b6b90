"""Of the memory engines."""

__all__ = ["BurstSplitterTiming", "ReadEngineTiming", "ReadPortsTiming", "WriteEngineTiming"]


class BurstSplitterTiming:
    """Of `BurstSplitter`, cores/bus/burst_splitter.py."""

    #: Cycles from a run to its first burst.
    LATENCY = 1


class ReadEngineTiming:
    """Of `ReadEngine`, cores/bus/read_engine.py."""

    #: Cycles from a request to its address on the bus: splitter, address register.
    REQUEST_LATENCY = BurstSplitterTiming.LATENCY + 1
    #: Cycles from a beat on the bus to its requester.
    DATA_LATENCY = 1


class WriteEngineTiming:
    """Of `WriteEngine`, cores/bus/write_engine.py."""

    #: Cycles from a run to its address on the bus: splitter, address register.
    RUN_LATENCY = BurstSplitterTiming.LATENCY + 1
    #: Cycles from a burst's address on the bus until its first beat can be there: the register of its length.
    DATA_LATENCY = 1
    #: Beats held between the store engine and the bus: keeps the bus's ready away from the store pipeline's enable, and
    #: fills one 32-deep LUT RAM.
    BUFFER_BEATS = 32


class ReadPortsTiming:
    """Of `ReadPorts`, cores/bus/read_ports.py."""

    #: Cycles from a wide address to that of its first piece, and from the last half of a beat to the beat.
    REQUEST_LATENCY = BurstSplitterTiming.LATENCY + 1
    DATA_LATENCY = 2
    #: What a memory seems to take longer: both, and a cycle for the second half of a beat.
    MORE_LATENCY = REQUEST_LATENCY + 1 + DATA_LATENCY
