"""Arithmetic of one channel of the Winograd transformer."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ...lib.component import Component

__all__ = ["COLUMN_BITS", "Operation", "WinogradLane"]

#: Bits of a sum of two pixels, and of two such sums.
COLUMN_BITS = 9
_VALUE_BITS = 10

#: ``a + (b ^ subtract) + carry``.
Operation = data.StructLayout({"subtract": 1, "carry": 1})


def _sum(a: Value, b: Value, operation: data.View) -> Value:
    """A sum or difference in a LUT a bit.

    As a subtraction it has a first operand, the one that goes to the carry chain's data input, which must be a register
    (Yosys orders the operands of a sum as it likes). The lowest bit borrows unless there is a carry.
    """
    other = ~(b ^ operation.subtract.replicate(len(b)).as_signed()).as_signed()
    return (Cat(0, a).as_signed() - Cat(~operation.carry, other).as_signed())[1:]


class WinogradLane(Component):
    """Vertical sums of pixels, and transformed values from these.

    ``column`` follows ``pixels`` by a cycle, ``value`` follows ``columns`` by one (exact) or two (``narrow``);
    ``hold`` stops the latter. ``a - b`` has a carry, but ``b - a`` is ``~(a + ~b)``: where the pixels stand the
    wrong way round, all columns are inverted, and so is the sum of two of them if it gets a carry the other way;
    ``invert`` undoes it. So no operand ever needs a multiplexer.

    Golden model: ``sim.golden.winograd_input``.
    """

    def __init__(self, *, narrow: bool):
        self.narrow = narrow
        super().__init__({
            "pixels": In(data.ArrayLayout(signed(8), 2)),  # of two rows
            "vertical": In(Operation),               # what to do with the pixels
            "column": Out(signed(COLUMN_BITS)),      # their sum, a cycle later
            "hold": In(1),                           # stop what follows
            "columns": In(data.ArrayLayout(signed(COLUMN_BITS), 2)),  # two sums, from memory
            "horizontal": In(Operation),             # what to do with the columns
            "invert": In(1),                         # undo the inversion of the columns of the cycle before
            **({"shift": In(2)} if narrow else {}),  # bits that the sum of the columns of the cycle before loses
            # Transformed, one cycle after the columns, or two (narrow).
            "value": Out(signed(8 if narrow else _VALUE_BITS)),
        })

    def elaborate(self, platform):
        m = Module()
        column = Signal(signed(COLUMN_BITS), reset_less=True)
        total = Signal(signed(_VALUE_BITS), reset_less=True)
        m.d.sync += column.eq(_sum(self.pixels[0], self.pixels[1], self.vertical))
        m.d.comb += self.column.eq(column)
        with m.If(~self.hold):
            m.d.sync += total.eq(_sum(self.columns[0], self.columns[1], self.horizontal))
        if not self.narrow:
            m.d.comb += self.value.eq(total ^ self.invert.replicate(_VALUE_BITS).as_signed())
            return m

        # Shift and inversion are one LUT of six inputs a bit, in front of the carry that rounds.
        shift, top = self.shift, _VALUE_BITS - 1
        shifted = Cat(
            Mux(shift[1], total[min(bit + 2, top)], Mux(shift[0], total[min(bit + 1, top)], total[bit])) ^ self.invert
            for bit in range(_VALUE_BITS))
        half = Mux(shift[1], total[1], shift[0] & total[0]) ^ (self.invert & shift.any())
        rounded = Signal(signed(_VALUE_BITS), reset_less=True)
        with m.If(~self.hold):
            # shifted + half, as in `_sum`.
            m.d.sync += rounded.eq((Const(0, _VALUE_BITS + 1) - Cat(~half, ~shifted))[1:])
        high = rounded[7:]
        inside = high.all() | ~high.any()
        clipped = Cat(*(Mux(inside, bit, ~rounded[-1]) for bit in rounded[:7]), rounded[-1])
        m.d.comb += self.value.eq(clipped.as_signed())
        return m
