"""Words of pixels whose channels are taken in parts."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Module, Signal, Value
from amaranth.utils import exact_log2

from ...config import NpuConfig
from ..pixel_order import PixelOrder
from ..pixel_words import PixelWords

__all__ = ["PartWords"]


class PartWords(PixelWords):
    """A pixel has a position for each ``part``, all with its word; what ends with the pixel ends with the last part."""

    def __init__(self, config: NpuConfig):
        super().__init__(config)
        self.POSITION = {"part": exact_log2(config.store_parts)}

    def positions(self, m: Module, pixels: Any, output: Any, found: Mapping[str, Value], *, active: Signal,
                  step: Signal, word: Signal, pixel: Value, order: PixelOrder) -> None:
        part, taken = Signal(self.POSITION["part"], name="part"), Signal(name="part_taken")
        found = {**found, "part": part, **{name: found[name] & part.all() for name in ("leaves", "block_end", "end")}}
        super().positions(m, pixels, output, found, active=active, step=taken, word=word, pixel=pixel, order=order)
        m.d.comb += step.eq(taken & part.all())
        with m.If(taken):
            m.d.sync += part.eq(part + 1)
