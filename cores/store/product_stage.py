"""A second stage that multiplies, or has one beat for a whole block."""

from collections.abc import Mapping, Sequence
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value

from ..timing.store import RequantizerTiming
from .second_stage import SecondStage

__all__ = ["ProductStage"]


class ProductStage(SecondStage):
    """STORE_MULTIPLY too, and sums with ``broadcast``.

    The residual of a STORE_MULTIPLY has its turn `FACTOR` cycles after its pixel, so that its total is there when the
    first stage's result comes back: it takes the place of an accumulator, and the result that of a multiplier.
    """

    MULTIPLIES = True

    def multiplies(self) -> Value:
        return self.chain.multiplies

    def other_turn(self, cycle: int, stages: Sequence[Value]) -> Value:
        return Mux(self.chain.multiplies, stages[cycle + RequantizerTiming.FACTOR], super().other_turn(cycle, stages))

    def factors(self, own: Value, other: Value) -> tuple[Value, Value]:
        """A STORE_MULTIPLY has its only multiplier, the other operand's, where the others have the result's."""
        multiplies = self.chain.multiplies
        return Mux(multiplies, other, own), other & ~multiplies

    def accumulates(self, result: Value) -> Value:
        return result & ~self.chain.multiplies

    def residual(self, residuals: Mapping[int, Value]) -> Value:
        return Mux(self.chain.multiplies, residuals[2 + RequantizerTiming.FACTOR], super().residual(residuals))

    def begin_sources(self, m: Module, in_second: Sequence[Value]) -> None:
        returns = Signal()      # the total of the residual's turn stands in the lanes
        m.d.sync += returns.eq(in_second[RequantizerTiming.SECOND] & self.chain.multiplies)
        self._returns = returns

    def source(self, from_outside: Value, lane: Any) -> Value:
        return from_outside | Mux(self._returns, lane.total, 0)

    def wants_other(self, m: Module, wants: Value, position: Any) -> Value:
        wants_residual = Signal()
        m.d.comb += wants_residual.eq(wants & (position.block_start | ~self.chain.second.add.broadcast))
        return wants_residual

    def each_wants(self, wants: Value) -> Value:
        return wants & ~self.chain.second.add.broadcast
