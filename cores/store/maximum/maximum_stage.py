"""Maxima of four values, one after the other."""

from amaranth.hdl import Module, Mux, Signal

from ...timing.store import MaximumStageTiming
from ..store_stage import StoreStage

__all__ = ["MaximumStage"]


class MaximumStage(MaximumStageTiming, StoreStage):
    """The largest of each `VALUES` values in a lane: a beat with the last of them. Without ``use`` each is a beat.

    ``output`` has the largest so far. Golden model: ``sim.store_operations.maxima``.
    """

    def elaborate(self, platform):
        m = Module()
        count = Signal(range(self.VALUES))      # values that have come of those of the next beat
        later, last = Signal(), Signal()        # there are some; all but one
        m.d.sync += [
            self.output_valid.eq(self.valid & (last | ~self.use)),
            self.packed.eq(self.valid & self.use & ~last),
        ]
        with m.If(self.valid & self.use):
            m.d.sync += [count.eq(count + 1), later.eq(~last), last.eq(count == self.VALUES - 2)]
        with m.If(self.valid):
            for value, largest in zip(self.values, self.output, strict=True):
                m.d.sync += largest.eq(Mux(later & (largest > value), largest, value))
        return m
