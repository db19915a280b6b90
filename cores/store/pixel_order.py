"""Where the next pixel of a STORE is: what the counters of pixels know of that."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Module, Mux, Value
from amaranth.lib import wiring

from ..config import NpuConfig

__all__ = ["PixelOrder"]


class PixelOrder:
    """Row by row. An order that goes between rows derives from this."""

    #: Ports of `StorePixels` that only this order has.
    PORTS: Mapping[str, wiring.Member] = {}

    def __init__(self, config: NpuConfig):
        self.config = config

    def connect(self, chain: Any, pixels: Any) -> list[Any]:
        """In `StoreSequencer`: what `StorePixels` has to know."""
        return []

    def begin(self, m: Module, pixels: Any, word: Value, step: Value) -> None:
        """In `StorePixels`: what the order keeps. ``word``: the counter of words; ``step``: the next pixel's turn."""
        self._word = word

    @property
    def word(self) -> Value:
        """The word of the pixel at the counters."""
        return self._word

    def last_word(self, last_col: Value) -> Value:
        """The word before that of the next pixel, where that is in another; ``last_col``: in another row as well."""
        return self._word

    def next_row(self, row: Value, last_col: Value, block_end: Value) -> Value:
        """Row of its tile that the next pixel is in, of one in ``row``."""
        return Mux(last_col, ~row & ~block_end, row)
