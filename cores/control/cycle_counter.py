"""The one counter of a machine that has no others."""

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from ..arch.registers import COUNTER_BITS
from ..lib.component import Component

__all__ = ["CycleCounter"]


class CycleCounter(Component):
    """Counts the cycles of its one event, in `BITS` bits, and always shows them: those before this cycle."""

    #: Three hours at 100 MHz.
    BITS = 40

    def __init__(self) -> None:
        super().__init__({
            "events": In(1),             # counted where it is 1
            "clear": In(1),              # set to zero; an event of this cycle is not counted
            "select": In(1),             # which counter is wanted: there is no other
            "value": Out(COUNTER_BITS),  # the sum
            "valid": Out(1),             # always
        })

    def elaborate(self, platform):
        m = Module()
        count = Signal(self.BITS)
        with m.If(self.clear):
            m.d.sync += count.eq(0)
        with m.Elif(self.events):
            m.d.sync += count.eq(count + 1)
        m.d.comb += [self.value.eq(count), self.valid.eq(1)]
        return m
