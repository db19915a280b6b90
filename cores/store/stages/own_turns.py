"""Turns of second stages at multipliers of their own."""

from typing import Any

from amaranth.hdl import Const, Module, Signal, Value
from amaranth.lib.wiring import In

from ..turns import Turns

__all__ = ["OwnTurns"]


class OwnTurns(Turns):
    """A pixel sets out in every cycle, or in every second one if another operand and the first result share a
    multiplier.

    At one a cycle a beat of the side ring leaves while the next pixel sets out, which therefore looks beyond that beat.
    """

    PORTS = {"side_more": In(1)}    # the side ring has a beat in the next cycle, even if one leaves it in this

    def begin(self, m: Module, sequencer: Any, *, begin: Value, tiles: Value, words: Any, results: Any) -> Value:
        chain = sequencer.chain
        self.residual = residual = Signal()
        m.d.sync += residual.eq(chain.adds & ~chain.leaky)
        if self.config.residual_cycles == 1:
            return Const(1)
        phase = Signal()
        m.d.sync += phase.eq(~phase)
        # The two turns of a pixel are an odd number of cycles apart, of which those of others, an even number of
        # cycles later, keep clear. Pixels of tiles are further apart anyway.
        return ~residual | tiles | phase

    def lacks(self, sequencer: Any, wanted: Value) -> Value:
        there = (sequencer.side_valid & ~sequencer.take_residual) | sequencer.side_more
        return wanted & ~there

    def waits(self, sequencer: Any, lacks_parameters: Value) -> Value:
        return ~sequencer.side_valid | ~lacks_parameters

    def loads(self, stage: Any, block_start: Value, block_end: Value) -> tuple[Value, Value]:
        """The lanes keep what they hold. The next block's parameters come after the last residual of this one."""
        return block_start, (block_end & stage.each_wants(self.residual)) | (
            block_start & ~stage.each_wants(self.residual))

    def goes_on(self, issue: Value, add: Value) -> Value:
        return issue & self.residual if self.config.residual_cycles > 1 else Const(0)

    def ring(self, store: Any, ring: Any) -> list[Any]:
        return [store.side_more.eq(ring.more)]
