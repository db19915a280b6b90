"""Sign packer: the signs of neighbouring pixels become a beat."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from ..arch.numerics import MAP_PIXELS
from ..config import NpuConfig
from ..lib.component import Component
from ..timing.store import SignPackerTiming

__all__ = ["SignPacker"]


class SignPacker(SignPackerTiming, Component):
    """Collect ``signs`` of pixels until a beat is full or a row ends; what is left of that beat is zero.

    A pixel a cycle. The beat stands in ``beat`` `LATENCY` cycles after its last pixel, which ``completes`` it; in all
    other cycles ``beat`` is zero, so that it can be ORed into a path that others use. Golden model:
    ``sim.signs.pack_map``.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "valid": In(1),                 # a pixel comes
            "row_end": In(1),               # it is the last of its row
            "signs": In(config.ic_lanes),   # of its channels
            "completes": Out(1),            # its beat is full or its row ends
            "beat": Out(config.beat_bits),  # of signs, `LATENCY` cycles later; zero in all other cycles
        })

    def elaborate(self, platform):
        m = Module()
        slot = Signal(range(MAP_PIXELS))
        m.d.comb += self.completes.eq(self.valid & (self.row_end | slot.all()))
        # Every register takes the signs themselves: which of them does is a matter of its enable, not of a multiplexer.
        pixels = [Signal(self.config.ic_lanes, name=f"pixel{number}") for number in range(MAP_PIXELS)]
        with m.If(self.valid):
            m.d.sync += slot.eq(Mux(self.completes, 0, slot + 1))
            for number, pixel in enumerate(pixels):
                with m.If(slot == number):
                    m.d.sync += pixel.eq(self.signs)
            with m.If(slot == 0):
                m.d.sync += [pixel.eq(0) for pixel in pixels[1:]]
        full = Signal()
        m.d.sync += [full.eq(self.completes), self.beat.eq(Mux(full, Cat(*pixels), 0))]
        return m
