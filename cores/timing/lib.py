"""Of FIFOs and stream buffers."""

__all__ = ["BufferedFifoTiming", "FifoTiming", "ShallowFifoTiming", "StreamBufferTiming"]


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
