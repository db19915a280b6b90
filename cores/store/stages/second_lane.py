"""Arithmetic of one channel of a second stage on multipliers of its own."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ...arch.numerics import CONSTANT_BITS, FACTOR_BITS, FIRST_BITS, MULTIPLIER_BITS
from ...lib.component import Component
from ..requantizer_lane import SHIFT_BITS, rescale

__all__ = ["SecondControl", "SecondLane"]

#: Bits of a sum, and of one that may be a product of two operands.
_SUM_BITS, _PRODUCT_BITS = CONSTANT_BITS + 2, FIRST_BITS + FACTOR_BITS

#: What a chain's second stage does, the same for all lanes: it stands still while pixels are under way.
SecondControl = data.StructLayout({
    "factor": signed(MULTIPLIER_BITS + 1),          # of the first result
    "negative_factor": signed(MULTIPLIER_BITS + 1),  # of a negative one
    "other_factor": signed(MULTIPLIER_BITS + 1),    # of the other operand
    "constant": signed(CONSTANT_BITS + 1),          # added to the other operand's product
    "adds": 1,                                      # that total is added to the first result's product
    "multiplies": 1,                                # or is its factor
    "shift": SHIFT_BITS,
    "zero_point": signed(8),
    "low": signed(8),
    "high": signed(8),
})


class SecondLane(Component):
    """``clip(((value * factor + other * other_factor + constant) >> shift) + zero_point)``, rounded; or of ``value``
    times the other operand's total; or without another operand.

    Latency 8 from ``value`` to ``output``. ``other`` comes a cycle before its ``value``, three if it multiplies. With
    ``apart`` there is a multiplier for each, and a value a cycle. Otherwise they share one: in a cycle with ``own`` it
    is the value's, in others the other operand's. Golden models: ``sim.store_operations.residual_add``,
    ``sim.store_operations.leaky``, ``sim.store_operations.product``.

    ``multiplies``: a chain can have the total as a factor.
    """

    def __init__(self, *, apart: bool, multiplies: bool = False):
        self.apart, self.multiplies = apart, multiplies
        super().__init__({
            "value": In(signed(FIRST_BITS)),    # the first stage's result
            "other": In(signed(8)),             # the other operand
            "control": In(SecondControl),       # what is done
            **({} if apart else {"own": In(1)}),  # ``value`` goes through the multiplier, and not ``other``
            "output": Out(signed(8)),           # the result
            "negative": Out(1),                 # its sign before the clip, a cycle earlier
        })

    def elaborate(self, platform):
        m = Module()
        control = self.control
        bits = _PRODUCT_BITS if self.multiplies else _SUM_BITS
        total = Signal(signed(bits), reset_less=True)
        # Cycle 0 is that of ``value``; the other operand's total stands in cycle 2, or in 0 where it is a factor.
        other_total = Signal(signed(bits), reset_less=True) if self.apart else total
        factor = Mux(self.value[-1], control.negative_factor, control.factor)
        if self.multiplies:
            factor = Mux(control.multiplies, other_total[:FACTOR_BITS].as_signed(), factor)
        wide = Signal(signed(len(factor)), reset_less=True)
        narrow = Signal(signed(FIRST_BITS), reset_less=True)
        product = Signal(signed(len(wide) + len(narrow)), reset_less=True)
        m.d.sync += product.eq(wide * narrow)
        added = Mux(control.adds, other_total, 0)
        if self.apart:
            other = Signal(signed(8), name="other_operand", reset_less=True)
            other_product = Signal(signed(len(other) + len(control.other_factor)), reset_less=True)
            m.d.sync += [
                wide.eq(factor),
                narrow.eq(self.value),
                total.eq(product + added),
                other.eq(self.other),
                other_product.eq(other * control.other_factor),
                other_total.eq(other_product + control.constant),
            ]
        else:
            own = [self.own, *(Signal(name=f"own{cycle}") for cycle in (1, 2))]
            m.d.sync += [later.eq(sooner) for sooner, later in zip(own, own[1:], strict=False)]
            m.d.sync += [
                wide.eq(Mux(self.own, factor, control.other_factor)),
                narrow.eq(Mux(self.own, self.value, self.other)),
                total.eq(product + Mux(own[2], added, control.constant)),
            ]
        # The total stands in cycle 3.
        moved, clipped = rescale(m, total, control.shift, control.zero_point, control.low, control.high, stands=True)
        m.d.sync += self.output.eq(clipped)
        m.d.comb += self.negative.eq(moved[-1])
        return m
