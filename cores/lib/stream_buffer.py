"""Two registers between a producer and a consumer."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["StreamBuffer"]


class StreamBuffer(wiring.Component):
    """Passes on payloads of ``shape`` such that no path goes through: ``i.ready``, ``o.valid`` and ``o.payload`` are
    registers.

    One a cycle, `LATENCY` cycles later. What comes while ``o`` waits stands in the second register.
    """

    LATENCY = 1

    def __init__(self, shape):
        super().__init__({
            "i": In(stream.Signature(shape)),   # payloads
            "o": Out(stream.Signature(shape)),  # the same, later
        })

    def elaborate(self, platform):
        m = Module()
        offer = Value.cast(self.o.payload)
        spare, free = Signal.like(Value.cast(self.i.payload), name="spare", reset_less=True), Signal(init=1)
        m.d.comb += self.i.ready.eq(free)
        with m.If(free):
            m.d.sync += spare.eq(Value.cast(self.i.payload))
        with m.If(self.o.ready | ~self.o.valid):
            m.d.sync += [offer.eq(Mux(free, Value.cast(self.i.payload), spare)), self.o.valid.eq(self.i.valid | ~free),
                         free.eq(1)]
        with m.Elif(self.i.valid):
            m.d.sync += free.eq(0)
        return m
