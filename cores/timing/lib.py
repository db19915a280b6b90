"""Of FIFOs, stream buffers and trees."""

__all__ = ["ADDED", "BufferedFifoTiming", "FifoTiming", "ShallowFifoTiming", "StreamBufferTiming", "tree_stages"]


class StreamBufferTiming:
    """Of `StreamBuffer`, cores/lib/stream_buffer.py."""

    LATENCY = 1
    #: Places.
    DEPTH = 2


class FifoTiming:
    """Of `Fifo`, cores/lib/fifo.py."""

    LATENCY = 1


class BufferedFifoTiming:
    """Of `BufferedFifo`, cores/lib/fifo.py."""

    LATENCY = 2


class ShallowFifoTiming(BufferedFifoTiming):
    """Of `ShallowFifo`, cores/lib/fifo.py."""


#: Numbers that a tree combines between two registers.
ADDED = 4


def tree_stages(count: int) -> int:
    """Registers of a tree over so many numbers."""
    stages = 0
    while count > 1:
        count, stages = -(-count // ADDED), stages + 1
    return stages
