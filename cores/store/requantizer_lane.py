"""Arithmetic of one channel of the requantizer."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ..arch.instruction_layout import field_shape
from ..arch.isa import Opcode
from ..arch.numerics import FACTOR_BITS, FIRST_BITS, MAX_SHIFT, MIN_SHIFT, MULTIPLIER_BITS
from ..lib.bits import difference, select
from ..lib.component import Component

__all__ = ["SHIFT_BITS", "ChannelLayout", "LaneControl", "RequantizerLane", "rescale"]

#: Bits of ``shift - MIN_SHIFT``.
SHIFT_BITS = (MAX_SHIFT - MIN_SHIFT).bit_length()
#: Bits of the second stage's constant.
_CONSTANT_BITS = field_shape(Opcode.STORE_ADD, "constant").width

#: Bits of the total that do not wait for the carry chain of the others.
_LAST_BITS = 13

#: Bits of the lower half of a wide operand that two multipliers of 18 bits share: its sign bit is 0.
_HALF_BITS = 17

#: Controls that all lanes share. The comment is the cycle, counted from a pixel's issue, in which the first stage's
#: value stands.
LaneControl = data.StructLayout({
    "load_bias": 1,             # 1
    "clear_bias": 1,            # 1
    "factor": signed(MULTIPLIER_BITS + 1),  # 2: zero for an accumulator, else the second stage's (residual: minus)
    "negative_factor": signed(MULTIPLIER_BITS + 1),  # 2: the same where the first stage's result is negative
    "load_factor": 1,           # 2: the channel's multiplier becomes the other factor
    "take_factor": 1,           # 2: or the residual or the first stage's result
    "residual": 1,              # 2: of these two, the residual
    "subtrahend": signed(_CONSTANT_BITS),  # 4: subtracted from the product
    "accumulate": 1,            # 4: the last total is subtracted instead
    "load_shift": 1,            # 4: the channel's shift, else ``shift`` if ``take_shift``
    "take_shift": 1,            # 4
    "shift": SHIFT_BITS,        # 4
    "zero_point": signed(8),    # 8
    "low": signed(FIRST_BITS),  # 9
    "high": signed(FIRST_BITS),  # 9
})


def ChannelLayout(acc_width: int) -> data.StructLayout:  # noqa: N802 - a layout
    """Parameters of a channel; ``shift`` counts from MIN_SHIFT."""
    return data.StructLayout({"bias": signed(acc_width), "multiplier": MULTIPLIER_BITS, "shift": SHIFT_BITS})


def _shift_narrow(value: Value, amount: Value, *, step: int, keep: int) -> tuple[Value, Value]:
    """``value >> (amount * step)`` in ``keep`` bits, and whether it does not fit these as a signed number.

    ``value`` is the two's complement number; its top bit goes on to the left.
    """
    ways, top = 1 << len(amount), len(value) - 1
    kept = Cat(select(amount, [value[min(bit + way * step, top)] for way in range(ways)]) for bit in range(keep))
    # A shift by ``way`` fits if all bits from the top one kept are equal. They are compared in chunks of a step, as
    # what a larger shift needs equal is a part of what a smaller one does.
    lost: Value = Const(0)
    for way in range(ways):
        first = keep - 1 + way * step
        last = top if way == ways - 1 else min(first + step, top)
        if first < last:
            chunk = value[first:last + 1]
            lost = lost | ((amount <= way) & chunk.any() & ~chunk.all())
    return kept, lost


def rescale(m: Module, total: Value, shift: Value, zero_point: Value, low: Value, high: Value, *,
            stands: bool = False) -> tuple[Signal, Value]:
    """A ``total``, signed, moved to the right by ``shift`` and MIN_SHIFT, rounded, beside a zero point: a register
    three cycles after that of the total, and what the clip makes of it.

    ``shift`` is that of the total; or it ``stands`` still, whatever total comes. ``zero_point`` stands in the cycle
    after next but one, the limits a cycle later.
    """
    # Three cycles: shift in steps of 8, 2, 1, dropping what only a saturated value would need. The bit right of the
    # point stays: it rounds. FIRST_BITS are enough, as a zero point brings no larger value back into eight.
    eights, lost_eights = _shift_narrow(total[MIN_SHIFT - 1:], shift[3:], step=8, keep=17)
    coarse, coarse_lost = Signal(17, reset_less=True), Signal(reset_less=True)
    coarse_shift = Signal(3, reset_less=True)
    twos, lost_twos = _shift_narrow(coarse, shift[1:3] if stands else coarse_shift[1:], step=2, keep=11)
    fine, fine_lost, fine_shift = Signal(11, reset_less=True), Signal(reset_less=True), Signal(reset_less=True)
    ones, lost_ones = _shift_narrow(fine, shift[0] if stands else fine_shift, step=1, keep=10)
    negative = [Signal(name=f"negative{cycle}", reset_less=True) for cycle in (6, 7)]
    rounded_up, integer = Signal(reset_less=True), Signal(9, reset_less=True)
    lost = Signal()
    m.d.comb += lost.eq(fine_lost | lost_ones)
    m.d.sync += [
        coarse.eq(eights), coarse_lost.eq(lost_eights), *([] if stands else [coarse_shift.eq(shift)]),
        fine.eq(twos), fine_lost.eq(coarse_lost | lost_twos), *([] if stands else [fine_shift.eq(coarse_shift)]),
        negative[0].eq(total[-1]), negative[1].eq(negative[0]),
        rounded_up.eq(Mux(lost, ~negative[1], ones[0])),
        integer.eq(Cat(*(Mux(lost, ~negative[1], bit) for bit in ones[1:-1]), negative[1])),
    ]
    # The fourth: zero point, rounding as carry.
    moved = Signal(signed(10), reset_less=True)
    m.d.sync += moved.eq((Cat(1, integer).as_signed() + Cat(rounded_up, zero_point).as_signed())[1:])
    at_least_low = Mux(moved < low, low, moved)
    return moved, Mux(moved > high, high, at_least_low)


class RequantizerLane(Component):
    """``clip((((source + bias) * multiplier) >> shift) + zero_point)``, rounded, on one multiplier of ``acc_width`` x
    18 bits, or of ``halves`` on two of 18 x 18 bits.

    Latency 8 from ``source`` (cycle 2) to ``output`` (cycle 10), one value a cycle. The second stage sends
    ``residual``, then ``output`` through the same multiplier. The first total is -b * multiplier_b - constant. The
    second is

    * with STORE_ADD a * multiplier_a minus the first;
    * with STORE_LEAKY a times the factor of its sign;
    * with STORE_MULTIPLY a times what the residual's turn has left in ``total``.

    `LaneControl` says which cycle does what. Golden models: ``sim.golden.requantize``,
    ``sim.store_operations.residual_add``, ``sim.store_operations.leaky``, ``sim.store_operations.product``.

    ``packs``: ``negative`` is the sign before the clip, in cycle 9; ``merge`` is ORed into ``output``, a cycle earlier.
    ``multiplies``: with ``total``. ``whole``: with ``result``, for a second stage on multipliers of its own.

    Raises ValueError unless ``acc_width`` is in 24..32.
    """

    def __init__(self, *, acc_width: int, halves: bool = False, packs: bool = False, multiplies: bool = False,
                 whole: bool = False):
        if not 24 <= acc_width <= 32:
            raise ValueError(f"acc_width must be in 24..32, not {acc_width!r}")
        self.acc_width = acc_width
        self.halves = halves
        self.packs = packs
        self.multiplies = multiplies
        self.whole = whole
        super().__init__({
            "source": In(signed(acc_width)),          # accumulator, in cycle 2
            "channel": In(ChannelLayout(acc_width)),  # parameters
            "residual": In(signed(8)),                # other operand
            "control": In(LaneControl),               # what happens in this cycle, the same for all lanes
            "output": Out(signed(8)),                 # result, in cycle 10
            **({
                "negative": Out(1),  # in cycle 9: the sign before the clip
                "merge": In(8),      # ORed into ``output``, a cycle earlier
            } if packs else {}),
            **({
                # In cycle 5: the low bits of the product less what is subtracted.
                "total": Out(signed(FACTOR_BITS)),
            } if multiplies else {}),
            **({
                "result": Out(signed(FIRST_BITS)),  # that of which ``output`` are the low bits
            } if whole else {}),
        })

    def elaborate(self, platform):
        m = Module()
        control, channel = self.control, self.channel

        # Cycles 1 and 2: the operands. ``source`` and ``factor`` take turns in being zero.
        bias = Signal(signed(self.acc_width), reset_less=True)
        with m.If(control.load_bias):
            m.d.sync += bias.eq(channel.bias)
        with m.Elif(control.clear_bias):
            m.d.sync += bias.eq(0)
        wide = Signal(signed(self.acc_width), reset_less=True)
        result = Signal(signed(FIRST_BITS), reset_less=True)
        # bias + operand. As a subtraction it has a first operand, the one that goes to the carry chain's data input: a
        # register there saves a LUT a bit (Yosys orders the operands of a sum as it likes). The lowest bit borrows the
        # 1 that ~ adds.
        operand = self.source | Mux(result[-1], control.negative_factor, control.factor)
        m.d.sync += wide.eq((Cat(0, bias) - Cat(1, ~operand))[1:])
        narrow = Signal(signed(MULTIPLIER_BITS + 1), reset_less=True)
        with m.If(control.load_factor | control.take_factor):
            result_or_residual = Mux(control.residual, self.residual, result)
            m.d.sync += narrow.eq(Mux(control.load_factor, channel.multiplier, result_or_residual))

        # Cycles 3 and 4.
        total = Signal(signed(max(self.acc_width + MULTIPLIER_BITS, _CONSTANT_BITS + 1)), reset_less=True)
        subtracted = Signal.like(total)
        m.d.comb += subtracted.eq(Mux(control.accumulate, total, control.subtrahend))
        a, b = self._product(m, wide, narrow, subtracted.as_unsigned())
        m.d.sync += total.eq(difference(a, b, above=len(total) - _LAST_BITS))
        shift = Signal(SHIFT_BITS, reset_less=True)
        with m.If(control.load_shift | control.take_shift):
            m.d.sync += shift.eq(Mux(control.load_shift, channel.shift, control.shift))
        # Cycles 5 to 8; cycle 9: clip.
        moved, clipped = rescale(m, total, shift, control.zero_point, control.low, control.high)
        m.d.sync += result.eq(clipped | self.merge if self.packs else clipped)
        if self.packs:
            m.d.comb += self.negative.eq(moved[-1])
        m.d.comb += self.output.eq(result[:8])
        if self.multiplies:
            m.d.comb += self.total.eq(total[:FACTOR_BITS])
        if self.whole:
            m.d.comb += self.result.eq(result)
        return m

    def _product(self, m: Module, wide: Value, narrow: Value, subtracted: Value) -> tuple[Value, Value]:
        """What is subtracted of what, both as long as ``subtracted``, for ``wide * narrow - subtracted`` a cycle on.

        What two multipliers make is not added up in front of their registers: both products and what is subtracted
        become two numbers by an adder without carries, which puts no more than tables in front of the chain.
        """
        bits = len(subtracted)
        if not self.halves:
            product = Signal(signed(bits), reset_less=True)
            m.d.sync += product.eq(wide * narrow)
            return product.as_unsigned(), subtracted
        products = []
        for name, half in (("low", Cat(wide[:_HALF_BITS], Const(0, 1)).as_signed()),
                           ("high", wide[_HALF_BITS:].as_signed())):
            product = Signal(signed(len(half) + len(narrow)), name=f"{name}_product", reset_less=True)
            m.d.sync += product.eq(half * narrow)
            products.append(product)
        low, high = Signal(bits), Signal(bits - _HALF_BITS)
        m.d.comb += [low.eq(products[0]), high.eq(products[1])]
        x, y, z = low[_HALF_BITS:], high, ~subtracted[_HALF_BITS:]
        carries = (x & y | z & (x | y))[:-1]
        return Cat(low[:_HALF_BITS], x ^ y ^ z), ~Cat(~subtracted[:_HALF_BITS], 0, carries)
