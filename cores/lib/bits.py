"""Selecting among values, masks, and sums with short carry chains."""

from amaranth.hdl import Cat, Const, Mux, Value

__all__ = ["difference", "lanes_below", "leading_one", "select"]


def select(index: Value, choices: list[Value]) -> Value:
    """``choices[index]`` as a tree of two-way multiplexers, which maps to look-up tables better than a case."""
    for bit in index[:(len(choices) - 1).bit_length()]:
        choices = [Mux(bit, high, low) for low, high in zip(choices[::2], choices[1::2], strict=True)]
    return choices[0]


def difference(a: Value, b: Value, *, above: int) -> Value:
    """``a - b`` in the bits of ``a``, which is as long as ``b``: bits from ``above`` on are made for a borrow and for
    none, and the one from below chooses. A table and two carries for each of these bits; the chain ends there.
    """
    low = (a[:above] - b[:above])[:above + 1]
    high, other = a[above:], b[above:]
    borrows = (high + ~other)[:len(high)]
    return Cat(low[:above], Mux(low[above], borrows, (high - other)[:len(high)]))


def lanes_below(count: Value, lanes: int) -> Value:
    """``lanes`` bits, of which the lowest ``count`` are 1."""
    highest = (1 << len(count)) - 1
    return Cat(count > lane if lane < highest else Const(0, 1) for lane in range(lanes))


def leading_one(value: Value) -> Value:
    """The place of the highest bit that is 1, as a tree; 0 if there is none."""
    bits = max(1, (len(value) - 1).bit_length())
    none: tuple[Value, Value] = Const(0, 1), Const(0, 0)
    parts = [(bit, none[1]) for bit in value] + [none] * ((1 << bits) - len(value))
    while len(parts) > 1:
        parts = [(low | high, Cat(Mux(high, of_high, of_low), high))
                 for (low, of_low), (high, of_high) in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0][1]
