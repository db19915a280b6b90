"""Numbers of the arithmetic that the hardware, the simulators and the compiler share.

The rules themselves are stated in `sim/golden.py`; docs/numerics.md says why requantisation is what it is.
"""

__all__ = [
    "CONSTANT_BITS", "COUNT_SHIFT", "FACTOR_BITS", "FIRST_BITS", "MAP_PIXELS", "MAXIMUM_SIDE", "MAX_SHIFT",
    "MIN_SHIFT", "MULTIPLIER_BITS", "PARAMETER_BYTES", "POOL_WIDTH", "POSITIONS", "PRODUCT_MULTIPLIER_BITS",
    "SIGN_BLOCKS", "TABLE_BYTES", "half_of",
]

#: Bits of an unsigned requantisation multiplier: with its sign it fills the 18-bit port of a DSP slice.
MULTIPLIER_BITS = 17
#: Right shifts that the hardware can make.
MIN_SHIFT = 12
MAX_SHIFT = 43
#: Bits of the first stage's result where a second one follows: one more than an activation, so that a branch that is
#: added with both its own range and that of the other operand keeps the step of the sum.
FIRST_BITS = 9
#: Bits of the signed constant of the second stage: both operands' zero points, times their multipliers.
CONSTANT_BITS = 28
#: Bits that a count of equal signs is shifted left by on its way to the accumulators: there a sum of signs, twice the
#: count but for a constant, has the unit of an int8 layer with weights of plus and minus 64, the largest power of two,
#: and biases are a 64th part of a sum apart.
COUNT_SHIFT = 7
#: Bits of what a second stage that multiplies makes of the other operand, its signed factor: any accumulator's path to
#: the multiplier has them. The operand and its zero point differ by up to 255, which leaves the multiplier 15 bits.
FACTOR_BITS = 24
PRODUCT_MULTIPLIER_BITS = FACTOR_BITS - 9
#: Bytes of one channel's parameters in memory: int32 bias, then uint32 with the multiplier in bits 0..16 and the shift
#: in bits 24..29.
PARAMETER_BYTES = 8
#: Bits of a window sum in the pool unit, no more than an accumulator has: windows of up to 65,536 pixels.
POOL_WIDTH = 24
#: A byte holds the signs of eight values: those of as many pixels of a block are a beat of a map of signs, those of as
#: many int8 blocks an entry of the input buffer.
MAP_PIXELS = SIGN_BLOCKS = 8
#: A table has a byte for each int8 value.
TABLE_BYTES = 256
#: Positions of a transformed Winograd tile: products that its four pixels are made of.
POSITIONS = 16
#: Rows and columns of the results of which a store can write the largest.
MAXIMUM_SIDE = 2


def half_of(number, places: int):
    """Which half of an entry of signs its ``number``-th bit, or byte, is in, of so many ``places``; also of arrays.

    The halves, 0 and 1, take turns: each has every second of the eight int8 blocks that the entry has room for.
    """
    return number * SIGN_BLOCKS // places % 2
