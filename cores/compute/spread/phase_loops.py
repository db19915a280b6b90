"""Windows of any stride, phase by phase, as the loops of a tile count them."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Module, Mux, Shape, Signal, Value
from amaranth.utils import exact_log2

from ...buffers.input_buffer import ENTRY_BITS
from ..loop_words import Count, LoopRegisters
from .spread_loops import SpreadLoops

__all__ = ["PhaseLoops"]


class PhaseLoops(SpreadLoops):
    """A window's steps go on from phase to phase of the columns, and after the last one to further taps of the first.

    A phase is every stride-th column: with stride 1 there is one. No rows alternate.
    """

    def members(self, columns: Shape) -> Mapping[str, Any]:
        # A depthwise COMPUTE; accumulator words of a row; from the last phase's entry of taps to the next first one's.
        return {"window": 1, "words": columns, "next_taps": ENTRY_BITS}

    def prepare(self, g: Any, window: Value, prepared: Any) -> list[Any]:
        reads = exact_log2(self.config.window_taps // self.config.banks)
        return [prepared.next_taps.eq((g.stride << reads) - g.stride + 1)]

    def next_taps(self, m: Module, loops: Any, at: LoopRegisters) -> None:
        with m.If(loops.window & at.phases.last):
            m.d.sync += [loops.turn.eq(0), *[tap.eq(tap + at.own.next_taps) for tap in at.taps]]

    def rows(self, of: Any, plain: Count, at: LoopRegisters | None) -> Count:
        return plain

    def emit(self, m: Module, loops: Any, at: LoopRegisters) -> None:
        self._words_left = Signal.like(at.own.words, name="words_left")

    def next_word(self, m: Module, loops: Any, at: LoopRegisters) -> None:
        words_left = self._words_left
        m.d.sync += [
            words_left.eq(Mux(at.cols.last, at.own.words, words_left - 1)),
            at.emits.eq(at.cols.last | ~loops.window | at.emits & (words_left != 1)),
        ]

    def start(self, m: Module, prepared: Any, at: LoopRegisters) -> None:
        m.d.sync += [self._words_left.eq(prepared.words), at.emits.eq(1)]
