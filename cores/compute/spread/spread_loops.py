"""Spread words and windows, as the loops of a tile count them."""

from collections.abc import Callable, Mapping
from typing import Any

from amaranth.hdl import Module, Mux, Shape, Signal, Value
from amaranth.utils import exact_log2

from ...arch.instruction_layout import is_kind
from ...arch.isa import WordForm
from ..loop_words import Count, LoopRegisters, LoopWords

__all__ = ["SpreadLoops"]


def _by_bits(words: Count, columns: Value, pixels: int) -> Count:
    """``words`` of a row of so many ``columns``, ``pixels`` in each: that there are one or two is asked of single bits.
    What chooses among words takes tables enough without two comparisons in front of it.
    """
    def at_most(power: int) -> Value:
        bit = exact_log2(power)
        return ~(columns[bit + 1:].any() | (columns[bit] & columns[:bit].any()))

    return Count(words.number, at_most(pixels), at_most(2 * pixels) & ~at_most(pixels))


class SpreadLoops(LoopWords):
    """A spread word has ``banks`` pixels. A cycle of a window is a read: it may read on after its row's last word, for
    that word's taps.
    """

    def members(self, columns: Shape) -> Mapping[str, Any]:
        # A depthwise COMPUTE; the first ky's steps have a row more; accumulator words of a row.
        return {"window": 1, "shift": 1, "words": columns}

    def row(self, m: Module, loops: Any, prepared: Any, row_of: Callable[[int], Count]) -> Count:
        g = loops.next_geometry
        spread, window = is_kind(g.words, WordForm.SPREAD, self.config), loops.next_kinds.window
        words = Count(*(Mux(spread, wide, plain) for wide, plain in zip(*(
            _by_bits(row_of(pixels), g.cols, pixels) for pixels in (self.config.banks, self.config.pixel_lanes)),
            strict=True)))
        m.d.sync += [prepared.words.eq(words.number), prepared.window.eq(window), *self.prepare(g, window, prepared)]
        reads = Count(g.reads, g.reads <= 1, g.reads == 2)
        return Count(*(Mux(window, of_window, of_word) for of_window, of_word in zip(reads, words, strict=True)))

    def prepare(self, g: Any, window: Value, prepared: Any) -> list[Any]:
        """What else is made of the geometry of a COMPUTE to begin, a ``window`` or not: statements."""
        return [prepared.shift.eq(window & g.shift)]

    def begin(self, m: Module, loops: Any, own: Any) -> None:
        m.d.comb += loops.window.eq(own.window)

    def next_taps(self, m: Module, loops: Any, at: LoopRegisters) -> None:
        with m.If(loops.window):     # the next nnz_lanes taps
            m.d.sync += [*at.phases.start(loops.geometry.stride, at.own.one_phase, at.own.two_phases), loops.turn.eq(0)]
            m.d.sync += [tap.eq(tap + self.config.nnz_lanes // self.config.banks) for tap in at.taps]

    def pixels_taken(self, m: Module, loops: Any, taken: Value) -> None:
        with m.If(is_kind(loops.geometry.words, WordForm.SPREAD, self.config) & ~loops.pool):
            m.d.comb += taken.eq(self.config.banks)

    def rows(self, of: Any, plain: Count, at: LoopRegisters | None) -> Count:
        """With ``shift`` a step of the first ky has a row more."""
        more = of.shift if at is None else of.shift & at.first_ky & ~(at.groups.last & at.kxs.last)
        return Count(plain.number + more, plain.single & ~more, Mux(more, plain.single, plain.two))

    def emit(self, m: Module, loops: Any, at: LoopRegisters) -> None:
        words_left = Signal.like(at.own.words, name="words_left")
        first_row = Signal()
        above = Signal()
        m.d.comb += above.eq(at.own.shift & at.first_ky)     # the upper group is a row behind
        with m.If(above):
            m.d.comb += [loops.lower.eq(at.emits & ~at.rows.last), loops.upper.eq(at.emits & ~first_row),
                         loops.upper_address.eq(loops.acc_address - at.own.words)]
        self._words_left, self._first_row = words_left, first_row

    def next_word(self, m: Module, loops: Any, at: LoopRegisters) -> None:
        words_left, emits = self._words_left, at.emits
        with m.If(at.cols.last):
            m.d.sync += [words_left.eq(at.own.words), emits.eq(1), self._first_row.eq(at.last_pixel)]
        with m.Else():
            m.d.sync += [words_left.eq(words_left - 1), emits.eq(~loops.window | emits & (words_left != 1))]

    def start(self, m: Module, prepared: Any, at: LoopRegisters) -> None:
        m.d.sync += [self._words_left.eq(prepared.words), at.emits.eq(1), self._first_row.eq(1)]
