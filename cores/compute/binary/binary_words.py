"""Binary words: the binary unit as the compute engine has it, with the parities of its weights."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In

from ...arch.numerics import COUNT_SHIFT
from ...config import NpuConfig
from ...timing.binary import BinaryWordsTiming
from ..array_unit import ArrayUnit
from .binary_unit import BinaryUnit
from .popcount import entry_parities

__all__ = ["BinaryWords"]


class BinaryWords(BinaryWordsTiming, ArrayUnit):
    """How many bits of each pixel of a word equal the weights of each of ``binary_rows`` rows, times 2**COUNT_SHIFT.

    Golden model: ``sim.golden.binary_sums``.
    """

    def __init__(self, config: NpuConfig, *, latency: int):
        super().__init__(config, latency=latency, ports={
            # Of each pixel, which halves count half of their bits.
            "zeros": In(data.ArrayLayout(2, config.banks)),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.unit = unit = BinaryUnit(config, latency=self.latency)
        # The unit takes the parities a cycle after the rows: so much later they may follow them.
        parities = Signal.like(unit.weight_parities, name="parities", reset_less=True)
        with m.If(self.row_taken):
            arriving = entry_parities(self.rows[-1], of_weights=True)
            m.d.sync += parities.eq(Cat(parities.as_value()[len(arriving):], arriving))
        finishing = self.finishing
        m.d.sync += [
            unit.swap.eq((finishing.turn + finishing.lane)[0] if config.pixel_lanes > 1 else 0),
            unit.take.eq(self.takes(finishing)),
        ]
        m.d.comb += [
            unit.pixels.eq(self.pixels),
            unit.zeros.eq(self.zeros),
            unit.first_bank.eq(self.word.turn + self.word.lane),
            unit.weights.eq(self.rows),
            unit.weight_parities.eq(parities),
            unit.load.eq(self.starts(self.word)),
            self.release.eq(self.starts(self.following)),
            *[total.eq(count << COUNT_SHIFT) for total, count in zip(self.sums, unit.counts, strict=True)],
        ]
        return m
