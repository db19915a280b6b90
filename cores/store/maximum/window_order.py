"""Two rows at once: the order of pixels whose maxima are stored."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from ...arch.instruction_layout import field_shape
from ...arch.isa import Opcode
from ..pixel_order import PixelOrder

__all__ = ["WindowOrder"]


class WindowOrder(PixelOrder):
    """With STORE_MAXIMUM a column's second turn, which is a copy otherwise, is that of the row below it.

    The counter has the upper row's words. The lower one's follow it a cycle later: they are asked for no earlier. After
    a row the counter goes on after the lower one's last word.
    """

    PORTS = {
        "maximum": In(1),       # the second turn of a column is that of the row below it
        "row_words": In(field_shape(Opcode.STORE_MAXIMUM, "row_words")),    # from a row to the one below it
    }

    def connect(self, chain: Any, pixels: Any) -> list[Any]:
        return [pixels.maximum.eq(chain.maximum), pixels.row_words.eq(chain.maximum_word.row_words)]

    def begin(self, m: Module, pixels: Any, word: Value, step: Value) -> None:
        super().begin(m, pixels, word, step)
        places = exact_log2(self.config.acc_depth)
        below, lower = Signal(reset_less=True), Signal.like(word, name="lower_word", reset_less=True)
        far = Signal(max(len(word), len(pixels.row_words)) + 1)
        m.d.comb += far.eq(word + pixels.row_words)
        # What is beyond the bank stays beyond it.
        m.d.sync += lower.eq(Cat(far[:places], far[places:].any()))
        with m.If(pixels.restart):
            m.d.sync += below.eq(0)
        with m.Elif(step):
            m.d.sync += below.eq(pixels.maximum & ~below)
        self._maximum, self._below, self._lower = pixels.maximum, below, lower

    @property
    def word(self) -> Value:
        return Mux(self._below, self._lower, self._word)

    def last_word(self, last_col: Value) -> Value:
        return Mux(last_col, self.word, self._word)

    def next_row(self, row: Value, last_col: Value, block_end: Value) -> Value:
        return Mux(self._maximum, ~row, super().next_row(row, last_col, block_end))
