"""Counting ones in few look-up tables: what a binary dot product is made of.

An XNOR-popcount of x and w counts the pairs that are equal. Three pairs are a digit of weight 1, their parity, and one
of weight 2, their majority. The parity need not be made of the pairs: it is the XNOR of the parity of the three x and
that of the three w, each of which serves all rows or all pixels. Parities are pairs again, so only majorities are left
to be made for every x and w: n/2 of them, all of weight 2, and one last parity.
"""

from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from amaranth.hdl import Cat, Const, Value

from ...arch.numerics import half_of
from ...timing.binary import FIRST_ONES, ONES

__all__ = ["add_ones", "carries", "count_of", "entry_parities", "halves", "parities",
           "parity_steps"]

_T = TypeVar("_T")


@cache
def parity_steps(bits: int) -> tuple[tuple[int, ...], ...]:
    """Triples, and at the end one pair, that lead from ``bits`` items to one: step k makes item ``bits + k``.

    The first ``bits // 3`` steps take original items alone. There are ``bits / 2`` steps.

    Raises ValueError unless ``bits`` is a positive even number.
    """
    if bits < 2 or bits % 2:
        raise ValueError(f"bits must be a positive even number, not {bits!r}")
    items, following, steps = list(range(bits)), bits, []
    while len(items) > 1:
        size = min(3, len(items))
        whole = len(items) // size * size
        steps += [tuple(items[first:first + size]) for first in range(0, whole, size)]
        made = len(steps) + bits
        items = [*items[whole:], *range(following, made)]
        following = made
    return tuple(steps)


def parities(bits: Value, *, of_weights: bool) -> Value:
    """The items that the steps make, first step first: x's, or the weights'.

    An item of x and one of w are equal exactly if an odd number of the step's pairs is; for the step with two pairs,
    the weights' side is inverted.
    """
    items = list(bits)
    for step in parity_steps(len(bits)):
        chosen = [items[item] for item in step]
        item = chosen[0]
        for other in chosen[1:]:
            item = item ^ other
        items.append(~item if of_weights and len(step) == 2 else item)
    return Cat(items[len(bits):])


def halves(bits: Sequence[_T]) -> tuple[list[_T], list[_T]]:
    """An entry's bits, by halves."""
    first, second = ([bit for number, bit in enumerate(bits) if half_of(number, len(bits)) == half]
                     for half in range(2))
    return first, second


def entry_parities(bits: Value, *, of_weights: bool) -> Value:
    """`parities` of an entry's first half, then those of its second: each is counted by itself."""
    return Cat(parities(Cat(half), of_weights=of_weights) for half in halves(list(bits)))


def _majority(a: Value, b: Value, c: Value) -> Value:
    return (a & b) | (a & c) | (b & c)


def carries(x: list[Value], w: list[Value], steps: tuple[tuple[int, ...], ...]) -> list[Value]:
    """The digits of weight 2 of ``steps``, which count items of ``x`` and ``w``: each is one look-up table."""
    digits = []
    for step in steps:
        equal = [~(x[item] ^ w[item]) for item in step]
        digits.append(_majority(*equal) if len(step) == 3 else equal[0] & equal[1])
    return digits


def count_of(ones: list[Value]) -> tuple[Value, int]:
    """At most `FIRST_ONES`, counted: the number and its maximum."""
    if len(ones) < 2:
        return Cat(ones), len(ones)
    a, b, c = tuple([*ones, *[Const(0)] * (FIRST_ONES - len(ones))])
    return Cat(a ^ b ^ c, _majority(a, b, c)), len(ones)


def add_ones(number: Value, maximum: int, ones: list[Value]) -> tuple[Value, int, list[Value]]:
    """``number`` plus as many of ``ones`` as an adder takes: the sum, its maximum, the ones left.

    The adder is as wide as the count of five ones, which are absorbed by its look-up tables: three for six ones. It is
    written as a subtraction, which fixes that ``number`` goes to the carry chain's data input; the lowest bit makes the
    carry.
    """
    taken, carry = list(ones[:ONES - 1]), ones[ONES - 1] if len(ones) >= ONES else Const(0)
    a, b, c, d, e = tuple([*taken, *[Const(0)] * (ONES - 1 - len(taken))])
    low, first = a ^ b ^ c, _majority(a, b, c)
    second = _majority(low, d, e)
    count = Cat(low ^ d ^ e, first ^ second, first & second)
    maximum += min(len(ones), ONES)
    width = maximum.bit_length()
    # Above the count's own bits the subtrahend is all ones: nothing is left of it but the carry's way.
    subtrahend = Cat(~carry, ~count, Const(-1, width))[:width + 1]
    return (Cat(Const(0), number) - subtrahend)[1:width + 1], maximum, ones[ONES:]
