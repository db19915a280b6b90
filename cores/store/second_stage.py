"""The second stage of requantisation: which turn at the multipliers is whose."""

from collections.abc import Mapping, Sequence
from typing import Any

from amaranth.hdl import Const, Module, Value

from ..timing.store import RequantizerTiming

__all__ = ["SecondStage"]


class SecondStage:
    """STORE_ADD and STORE_LEAKY, which all machines have. One with further operations derives from this.

    The other operand's *turn* is the cycle in which it goes through the lanes, in front of the first stage's result.
    Cycles are counted from a pixel's issue; lists of values are by them.
    """

    #: Whether lanes give their total.
    MULTIPLIES = False

    def __init__(self, chain: Any):
        self.chain = chain

    def multiplies(self) -> Value:
        """Whether the chain multiplies by the other operand."""
        return Const(0)

    def other_turn(self, cycle: int, stages: Sequence[Value]) -> Value:
        """Of the signals in ``stages``, that of the other operand's turn, ``cycle`` after it."""
        return stages[cycle + RequantizerTiming.SECOND - 1]

    def factors(self, own: Value, other: Value) -> tuple[Value, Value]:
        """In whose turn the first multiplier of the operation is the factor, and the second: the result's (``own``),
        the ``other`` operand's.
        """
        return own, other

    def accumulates(self, result: Value) -> Value:
        """In the ``result``'s turn: the other operand's total is subtracted from its product."""
        return result

    def residual(self, residuals: Mapping[int, Value]) -> Value:
        """The other operand in its turn."""
        return residuals[1 + RequantizerTiming.SECOND]

    def begin_sources(self, m: Module, in_second: Sequence[Value]) -> None:
        """What all lanes have in common."""

    def source(self, from_outside: Value, lane: Any) -> Value:
        """What comes into a ``lane`` beside accumulators."""
        return from_outside

    def wants_other(self, m: Module, wants: Value, position: Any) -> Value:
        """In `StoreSequencer`: whether a position takes a beat; ``wants``: the operation has another operand."""
        return wants

    def each_wants(self, wants: Value) -> Value:
        """In `StoreSequencer`: whether all pixels of a block take a beat; ``wants``: the operation has another operand.
        """
        return wants
