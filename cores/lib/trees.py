"""Trees over many numbers, and delays beside them."""

from collections.abc import Callable, Sequence

from amaranth.hdl import Module, Signal, Value

from ..timing.lib import ADDED, tree_stages

__all__ = ["combined", "delayed", "summed"]


def combined(m: Module, values: Sequence[Value], combine: Callable[[Sequence[Value]], Value], name: str) -> Value:
    """What ``combine`` makes of them, `ADDED` at a time, `tree_stages` cycles later; a single one as it is."""
    level, stages = 0, tree_stages(len(values))
    while len(values) > 1:
        level += 1
        found = []
        for begin in range(0, len(values), ADDED):
            total = combine(values[begin:begin + ADDED])
            register = Signal(total.shape(), name=f"{name}{level}_{begin // ADDED}", reset_less=True)
            m.d.sync += register.eq(total)
            found.append(register)
        values = found
    assert level == stages
    return values[0]


def summed(m: Module, values: Sequence[Value], name: str) -> Value:
    """Their sum, `tree_stages` cycles later; a single one as it is."""
    return combined(m, values, lambda some: sum(some[1:], start=some[0]), name)


def delayed(m: Module, value: Value, cycles: int, name: str) -> Value:
    """``value`` as it was ``cycles`` ago, through registers with a reset."""
    for cycle in range(1, cycles + 1):
        register = Signal.like(value, name=f"{name}{cycle}")
        m.d.sync += register.eq(value)
        value = register
    return value
