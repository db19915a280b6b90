"""Stream buffer: two places in a stream, so that no path goes through it."""

from amaranth.hdl import Module, ShapeLike, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from ..timing.lib import StreamBufferTiming
from .component import Component

__all__ = ["StreamBuffer"]


class StreamBuffer(StreamBufferTiming, Component):
    """What goes in comes out `LATENCY` cycles later at the soonest, one in every cycle.

    ``ready`` and ``valid`` are registers, and so is the payload that comes out.
    """

    def __init__(self, shape: ShapeLike):
        super().__init__({
            "input": In(stream.Signature(shape)),    # into the buffer
            "output": Out(stream.Signature(shape)),  # out of it, in order
        })

    def elaborate(self, platform):
        m = Module()
        # The second place is taken only while the first one waits.
        full, second = Signal(), Signal.like(self.input.payload, name="second", reset_less=True)
        m.d.comb += self.input.ready.eq(~full)
        with m.If(~full):
            m.d.sync += second.eq(self.input.payload)
        with m.If(self.output.ready | ~self.output.valid):
            m.d.sync += [self.output.valid.eq(full | self.input.valid), full.eq(0)]
            with m.If(full):
                m.d.sync += self.output.payload.eq(second)
            with m.Else():
                m.d.sync += self.output.payload.eq(self.input.payload)
        with m.Elif(self.input.valid):
            m.d.sync += full.eq(1)
        return m
