"""Phase counter: padding, data, padding, along one side of a box."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["PhaseCounter"]


class PhaseCounter(wiring.Component):
    """Count ``before`` steps, then ``data``, then ``behind``, and from the beginning again.

    The lengths are taken with ``start`` and with the ``last`` step; any phase but not all may have none. Without
    ``may_lack_data`` there is at least one step of data.
    """

    def __init__(self, *, before_bits: int, data_bits: int, behind_bits: int, may_lack_data: bool):
        self.may_lack_data = may_lack_data
        super().__init__({
            "start": In(1),             # take the lengths
            "before": In(before_bits),  # steps of padding in front
            "data": In(data_bits),      # steps of data
            "behind": In(behind_bits),  # steps of padding behind
            "step": In(1),              # go on by one
            "in_data": Out(1),          # this step is data
            "last": Out(1),             # this step is the last; the lengths are taken with it
        })

    def elaborate(self, platform):
        m = Module()
        before, data, behind = Signal.like(self.before), Signal.like(self.data), Signal.like(self.behind)
        padding_last = (before == 1) & (data == 0) & (behind == 0) if self.may_lack_data else 0
        m.d.comb += [
            self.in_data.eq((before == 0) & (data != 0)),
            self.last.eq(Mux(before != 0, padding_last,
                             Mux(data == 1, behind == 0, (data == 0) & (behind == 1)))),
        ]
        with m.If(self.step):
            with m.If(before != 0):
                m.d.sync += before.eq(before - 1)
            with m.Elif(data != 0):
                m.d.sync += data.eq(data - 1)
            with m.Else():
                m.d.sync += behind.eq(behind - 1)
        with m.If(self.start | (self.step & self.last)):
            m.d.sync += [before.eq(self.before), data.eq(self.data), behind.eq(self.behind)]
        return m
