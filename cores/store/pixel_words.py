"""Which accumulator words make a pixel's sum: what the store engine knows of that."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, Value, signed

from ..config import NpuConfig
from .pixel_order import PixelOrder

__all__ = ["PixelWords"]


class PixelWords:
    """One word does, in a machine without Winograd tiles. A way of making it of more is derived from this."""

    #: Cycles from a pixel to its position, beside those that all take.
    LATENCY = 0
    #: Members of `PixelPosition` and of `PixelIssue` by name, with their bits, that only these words have.
    POSITION: Mapping[str, int] = {}
    ISSUE: Mapping[str, int] = {}

    def __init__(self, config: NpuConfig):
        self.config = config

    def positions(self, m: Module, pixels: Any, output: Any, found: Mapping[str, Value], *, active: Signal,
                  step: Signal, word: Signal, pixel: Value, order: PixelOrder) -> None:
        """In `StorePixels`: the positions of the pixel at its counters go to ``output``, with ``found`` by name, and
        ``step`` comes with the last of them. ``word`` and ``pixel``: the counters of its place; ``order`` has its word.
        """
        place = order.word
        m.d.comb += [
            pixels.beyond.eq(active & place[-1] & ~pixels.store.pooled),
            output.valid.eq(active & ~pixels.beyond),
            step.eq(active & ~pixels.beyond & output.ready),
            output.p.address.eq(place),
            *[output.p[name].eq(value) for name, value in found.items()],
        ]

    def turn(self, tiles: Value, phase: Value, comes: Value) -> Value:
        """In `StoreSequencer`: whether a pixel's first word may be read a cycle on, with a second stage; ``comes``: the
        pixel may set out then.
        """
        return comes

    def ends(self, m: Module, issue: Any, position: Any) -> tuple[Value, Value]:
        """In `StoreSequencer`: whether a position is that of a pixel's first word, and of its last."""
        return Const(1), Const(1)

    def begin_sources(self, m: Module, issue: Any, from_bank: Signal) -> None:
        """In `Requantizer`: what all lanes have in common. ``from_bank``: the selected word, of the cycle before, is
        that of a pixel.
        """
        self._from_bank = from_bank

    def source(self, m: Module, lane: int, chosen: Value) -> Value:
        """In `Requantizer`: a lane's sum, of what is selected of the words; zero where there is none."""
        bank_source = Signal(signed(self.config.acc_width), name=f"bank{lane}", reset_less=True)
        m.d.sync += bank_source.eq(Mux(self._from_bank, chosen, 0))
        return bank_source
