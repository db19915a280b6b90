"""Numbers of stochastic computing: circuits, stream lengths, shared sequences and the thresholds made of them.

An int8 value v stands for v / 128. A stream's bit n is 1 where the value is above the threshold of the shared
sequence's number n, and that threshold is the same for all lanes: docs/stochastic.md.
"""

import enum
from functools import cache

__all__ = [
    "ACC_BLOCK", "Circuit", "LENGTH_BITS", "MAX_LENGTH_LOG", "MIN_LENGTH_LOG", "SUM_LOG", "Sequence",
    "bipolar_threshold", "direction_numbers", "magnitude_threshold", "sobol_numbers", "sum_bits",
]

#: Streams have 2**3 to 2**10 bits.
MIN_LENGTH_LOG, MAX_LENGTH_LOG = 3, 10
#: Bits of a length in instructions and registers: its logarithm less the smallest one.
LENGTH_BITS = 3
#: Sums are those of int8 products: one whole stream of ones, 1.0, is 128 * 128.
SUM_LOG = 14
#: Products that share an accumulator of AND-ACC.
ACC_BLOCK = 4


def sum_bits(inputs: int) -> int:
    """Of a sum from -``inputs`` to ``inputs`` times 2**`SUM_LOG`."""
    return (inputs - 1).bit_length() + SUM_LOG + 2


class Circuit(enum.IntEnum):
    """How the product bits of a unit's inputs become a sum; docs/stochastic.md has each one's definition."""

    XNOR_MUX = 0
    AND_SEP_OR = 1
    AND_SEP_COUNTER = 2
    UGEMM = 3
    AND_ACC = 4
    AND_LOOP = 5

    @property
    def label(self) -> str:
        """The name that people use: ``xnor-mux``."""
        return self.name.lower().replace("_", "-")

    @property
    def bipolar(self) -> bool:
        """Streams stand for -1 to 1; else for magnitudes, beside a sign."""
        return self in (Circuit.XNOR_MUX, Circuit.UGEMM)

    @property
    def serial(self) -> bool:
        """What becomes of a bit depends on the bits before it, so that only one is made in a cycle."""
        return self in (Circuit.AND_SEP_COUNTER, Circuit.UGEMM, Circuit.AND_ACC)


class Sequence(enum.IntEnum):
    """What each of the shared sequences is compared with, or selects; the dimension of Sobol's sequence that it is."""

    ACTIVATIONS = 1
    WEIGHTS = 2
    SELECT = 3


#: Of each dimension but the first: the primitive polynomial's inner coefficients, and odd initial numbers, as many as
#: its degree.
_POLYNOMIALS = {Sequence.WEIGHTS: (0, (1,)), Sequence.SELECT: (1, (1, 3))}


@cache
def direction_numbers(sequence: Sequence) -> tuple[int, ...]:
    """``MAX_LENGTH_LOG`` numbers of that many bits: number n + 1 is number n XOR that of n's lowest zero bit.

    Of a sequence's first 2**k numbers the low ``MAX_LENGTH_LOG`` - k bits are zero.
    """
    if sequence == Sequence.ACTIVATIONS:
        odd = [1] * MAX_LENGTH_LOG
    else:
        inner, initial = _POLYNOMIALS[sequence]
        odd, degree = list(initial), len(initial)
        while len(odd) < MAX_LENGTH_LOG:
            following = odd[-degree] ^ odd[-degree] << degree
            for place in range(1, degree):
                following ^= (inner >> degree - 1 - place & 1) * odd[-place] << place
            odd.append(following)
    return tuple(number << MAX_LENGTH_LOG - 1 - place for place, number in enumerate(odd))


@cache
def sobol_numbers(sequence: Sequence) -> tuple[int, ...]:
    """The first 2**``MAX_LENGTH_LOG`` numbers."""
    numbers, directions = [0], direction_numbers(sequence)
    for index in range((1 << MAX_LENGTH_LOG) - 1):
        numbers.append(numbers[-1] ^ directions[(~index & index + 1).bit_length() - 1])
    return tuple(numbers)


def _threshold(number: int, value_bits: int, length_log: int) -> int:
    """v * 2**(length - value_bits), rounded, is above the number's upper ``length_log`` bits where v is above this."""
    half = (1 << max(0, value_bits - length_log)) // 2
    return number >> MAX_LENGTH_LOG - value_bits | max(0, half - 1)


def magnitude_threshold(number: int, length_log: int) -> int:
    """A magnitude of 0 to 128 has a 1 at this ``number`` of a sequence if it is above the threshold, 0 to 127.

    The same as ``round(magnitude / 128 * L) > r``, halves rounded up, r the number in a stream of L = 2**``length_log``
    bits.
    """
    return _threshold(number, 7, length_log)


def bipolar_threshold(number: int, length_log: int) -> int:
    """A value from -128 to 127 has a 1 at this ``number`` if the value plus 128 is above the threshold, 0 to 255.

    The same as ``round((value / 128 + 1) * L / 2) > r``.
    """
    return _threshold(number, 8, length_log)
