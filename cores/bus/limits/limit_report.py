"""Tells of the first burst that the limits have held back."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from cores.bus.axi import ErrorReport
from cores.config import NpuConfig
from cores.lib.component import Component

from .layouts import refusal_layout

__all__ = ["LimitReport"]


class LimitReport(Component):
    """An ``error`` for each cycle in which a burst is held back, and the ``address`` of the first one, from a cycle
    later until ``clear``. A read goes before a write of the same cycle.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "of_read": In(refusal_layout(config)),   # by the read engine
            "of_write": In(refusal_layout(config)),  # by the write engine
            "clear": In(1),                        # a run begins
            "error": Out(ErrorReport),             # stops the machine
            "address": Out(config.address_width),  # bus address of the first such burst
        })

    def elaborate(self, platform):
        m = Module()
        read, write, held = self.of_read, self.of_write, Signal()
        m.d.comb += [
            self.error.valid.eq(read.valid | write.valid),
            self.error.code.eq(Mux(read.valid, read.code, write.code)),
            self.error.index.eq(Mux(read.valid, read.index, write.index)),
        ]
        with m.If(self.clear):
            m.d.sync += [held.eq(0), self.address.eq(0)]
        with m.Elif(self.error.valid & ~held):
            m.d.sync += [held.eq(1), self.address.eq(Mux(read.valid, read.address, write.address))]
        return m
