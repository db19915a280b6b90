"""Skid buffer: a place in a stream for what comes when it cannot go on, so that ``ready`` is a register."""

from amaranth.hdl import Module, Mux, ShapeLike, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from .component import Component

__all__ = ["SkidBuffer"]


class SkidBuffer(Component):
    """What goes in comes out in the same cycle, or later if it must wait.

    ``input.ready`` is a register; ``output.valid`` and its payload follow from the input at once. `StreamBuffer` cuts
    both ways, for a cycle.
    """

    LATENCY = 0

    def __init__(self, shape: ShapeLike):
        super().__init__({
            "input": In(stream.Signature(shape)),    # into the buffer
            "output": Out(stream.Signature(shape)),  # out of it, in order
            "waits": Out(1),                         # something is inside
        })

    def elaborate(self, platform):
        m = Module()
        waits, waiting = self.waits, Signal.like(self.input.payload, name="waiting", reset_less=True)
        m.d.comb += [
            self.input.ready.eq(~waits),
            self.output.valid.eq(waits | self.input.valid),
            self.output.payload.eq(Mux(waits, waiting, self.input.payload)),
        ]
        m.d.sync += waits.eq(self.output.valid & ~self.output.ready)
        with m.If(~waits):
            m.d.sync += waiting.eq(self.input.payload)
        return m
