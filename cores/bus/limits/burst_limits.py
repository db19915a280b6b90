"""Compares bursts with the limits."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from cores.arch.axi import BOUNDARY_BYTES
from cores.config import NpuConfig
from cores.lib.component import Component

from .layouts import limits_layout

__all__ = ["BurstLimits"]


def _below(a: Value, b: Value) -> Value:
    """``a < b``, as the borrow of their difference: of a comparison synthesis makes carries with a table more."""
    return (a - b)[-1]


class BurstLimits(Component):
    """Whether the burst that a `BurstSplitter` offers is ``inside`` the limits: known in its first cycle, so that the
    comparison takes no time.

    ``burst_bytes``: at a multiple of so many bytes a run is cut. A run's first burst is compared as the run is taken.
    Each burst after it begins in the next place of this size, so it is inside if the one before it was, and was not in
    the last place. ``limits`` stand still during a run of the machine.

    Raises ValueError unless ``burst_bytes`` divides a page.
    """

    def __init__(self, config: NpuConfig, *, burst_bytes: int):
        if burst_bytes < 1 or BOUNDARY_BYTES % burst_bytes:
            raise ValueError(f"burst_bytes must divide {BOUNDARY_BYTES}, not {burst_bytes!r}")
        self.config, self.burst_bytes = config, burst_bytes
        super().__init__({
            "limits": In(limits_layout(config)),   # pages that may be reached
            "run": In(config.address_width),    # address of the run that is offered
            "take": In(1),                      # the splitter takes it, if there is one
            "burst": In(config.address_width),  # address of the burst at hand
            "next": In(1),                      # it goes out; the run's next, if it has one, follows
            "inside": Out(1),                   # the burst at hand may go out
        })

    def elaborate(self, platform):
        m = Module()
        shift = exact_log2(self.burst_bytes)
        below = exact_log2(BOUNDARY_BYTES // self.burst_bytes)      # bits of a place's number in its page
        first = Cat(Const(0, below), self.limits.first)
        last = Cat(Const((1 << below) - 1, below), self.limits.last)
        begin, at_hand = self.run[shift:], self.burst[shift:]
        after, before, goes_on = Signal(), Signal(), Signal()
        m.d.comb += [
            after.eq(~_below(begin, first)),
            before.eq(~_below(last, begin)),
            # Of a burst that is inside: the run's next one is, too.
            goes_on.eq(_below(at_hand, last)),
        ]
        with m.If(self.take):
            m.d.sync += self.inside.eq(self.limits.locked & after & before)
        with m.Elif(self.next):
            m.d.sync += self.inside.eq(self.inside & goes_on)
        return m
