"""Selecting among values, and masks."""

from amaranth.hdl import Cat, Const, Mux, Value

__all__ = ["lanes_below", "select"]


def select(index: Value, choices: list[Value]) -> Value:
    """``choices[index]`` as a tree of two-way multiplexers, which maps to look-up tables better than a case."""
    for bit in index[:(len(choices) - 1).bit_length()]:
        choices = [Mux(bit, high, low) for low, high in zip(choices[::2], choices[1::2], strict=True)]
    return choices[0]


def lanes_below(count: Value, lanes: int) -> Value:
    """``lanes`` bits, of which the lowest ``count`` are 1."""
    highest = (1 << len(count)) - 1
    return Cat(count > lane if lane < highest else Const(0, 1) for lane in range(lanes))
