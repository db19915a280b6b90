"""Small functions that the stochastic unit is made of, each in few look-up tables."""


from amaranth.hdl import Cat, Const, Value

from ...arch.stochastic import MAX_LENGTH_LOG, Sequence, direction_numbers, sobol_numbers

__all__ = ["above", "count_four", "sequence_numbers"]


def sequence_numbers(index: Value, sequence: Sequence, *, bits: int) -> list[Value]:
    """Numbers ``index * bits`` and the ``bits`` - 1 after it; ``bits`` is a power of two.

    A number is a linear function of the Gray code of its place, so those after have constant bits turned over.
    """
    place = Cat(Const(0, (bits - 1).bit_length()), index)[:MAX_LENGTH_LOG]
    gray = place ^ place[1:]
    directions = direction_numbers(sequence)
    columns = [Cat(gray[k] for k in range(len(place)) if directions[k] >> row & 1) for row in range(MAX_LENGTH_LOG)]
    first = Cat(column.xor() for column in columns)
    return [first ^ number for number in sobol_numbers(sequence)[:bits]]


def above(value: Value, threshold: Value) -> Value:
    """``value > threshold``, of unsigned numbers of 8 bits, as a tree instead of a carry chain."""
    parts = [(v & ~t, ~(v ^ t)) for v, t in zip(reversed(value), reversed(threshold), strict=True)]
    while len(parts) > 1:
        parts = [(greater | equal & greater_below, equal & equal_below)
                 for (greater, equal), (greater_below, equal_below) in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0][0]


def count_four(a: Value, b: Value, c: Value, d: Value) -> Value:
    """How many of four bits are ones: 3 bits, each a look-up table."""
    four = a & b & c & d
    return Cat(a ^ b ^ c ^ d, (a & b | c & d | (a ^ b) & (c ^ d)) & ~four, four)
