"""Phase counter: padding, data, padding, along one side of a box."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from ..lib.component import Component

__all__ = ["PhaseCounter", "count_down"]


def count_down(begin: Value, count: Value, at_hand: Value, *, first: int) -> Value:
    """``at_hand`` less ``first`` where ``begin``, else ``count`` less one: the next value of ``count``.

    A count is below zero when nothing is left of it, which its highest bit says without a comparison.
    """
    step = Mux(begin, Const(-first, len(count)), Const(-1, len(count)))
    return (Mux(begin, at_hand, count) + step)[:len(count)]


class PhaseCounter(Component):
    """Count ``length`` steps: ``before`` of padding, ``data``, and as many more of padding as there are.

    The lengths are taken with ``begin``, whatever is at hand. ``length`` is at least 1. What the present step is comes
    from registers alone.
    """

    def __init__(self, *, before_bits: int, data_bits: int, length_bits: int):
        super().__init__({
            "begin": In(1),             # take the lengths; the first step is the next cycle's
            "before": In(before_bits),  # steps of padding in front
            "data": In(data_bits),      # steps of data
            "length": In(length_bits),  # steps in all
            "step": In(1),              # go on by one
            "in_data": Out(1),          # this step is data
            "last": Out(1),             # this step is the last
        })

    def elaborate(self, platform):
        m = Module()
        # Steps after this one; steps from this one on of padding in front, and of data, less one.
        behind, before, data = (Signal(len(port) + 1, name=name) for port, name in (
            (self.length, "behind"), (self.before, "before_data"), (self.data, "data_left")))
        m.d.comb += [self.last.eq(behind[-1]), self.in_data.eq(before[-1] & ~data[-1])]
        with m.If(self.begin | self.step):
            m.d.sync += behind.eq(count_down(self.begin, behind, self.length, first=2))
        with m.If(self.begin | (self.step & ~before[-1])):
            m.d.sync += before.eq(count_down(self.begin, before, self.before, first=1))
        with m.If(self.begin | (self.step & self.in_data)):
            m.d.sync += data.eq(count_down(self.begin, data, self.data, first=1))
        return m
