"""Numbers of the row operations that the hardware, the simulators and the compiler share.

The arithmetic is stated in `sim/rows.py`; docs/numerics.md has it as formulas.
"""

import enum
import math

__all__ = [
    "CENTRE_PLACES", "COARSE", "ENTRY_BITS", "EPSILON_BITS", "EPSILON_PLACES", "FACTOR_BITS", "FACTOR_TABLE",
    "INDEX_BITS", "MAX_CHANNELS", "MEAN_PLACES", "NUMBER_BITS", "RowPass", "SHIFTS", "SQUARES_BITS", "SUM_BITS",
    "TOTAL_BITS",
]


class RowPass(enum.IntEnum):
    """What a POOL does with the channels of its pixels."""

    NONE = 0        # nothing: it is of windows
    MAXIMUM = 1     # keeps each pixel's maximum
    TOTAL = 2       # makes each pixel's factor of the sums of its channels
    RESULT = 3      # multiplies


#: Of a row.
MAX_CHANNELS = 1024
#: Exponentials: unsigned, 1 being all ones.
ENTRY_BITS = 17
#: Binary places after the point of what is subtracted from a row.
CENTRE_PLACES = 9
#: Of the sum of a row's values, signed, of that of its exponentials, and of that of its squares: with a sign those are
#: multiplied by one DSP slice.
SUM_BITS, TOTAL_BITS, SQUARES_BITS = 18, 27, 26
#: A mean is the sum times a number of so many bits, all after the point.
MEAN_PLACES = 26
#: Of what is added to a variance, which has places after the point for it; of a number whose factor is looked up.
EPSILON_BITS, EPSILON_PLACES, NUMBER_BITS = 36, 6, 43
#: Leading bits of it that find the factor, whose first bit is one.
INDEX_BITS, FACTOR_BITS = 10, 16
#: Right shifts of a product are made of one of the factor and one of the product, by so many places at a time.
SHIFTS, COARSE = 16, 4


def _factors() -> tuple[int, ...]:
    """1 / sqrt(x) of x = index / 256, of 1 to 4, then 1 / x of x = index / 512, of 1 to 2, in the middle of a step."""
    one, steps = 1 << FACTOR_BITS, 1 << INDEX_BITS
    roots = [round(one * math.sqrt(steps // 4 / (index + 0.5))) if index >= steps // 4 else 0 for index in range(steps)]
    ratios = [round(one * (steps // 2) / (index + 0.5)) if index >= steps // 2 else 0 for index in range(steps)]
    return (*roots, *ratios)


#: The factor of each index, inverse roots first.
FACTOR_TABLE = _factors()
