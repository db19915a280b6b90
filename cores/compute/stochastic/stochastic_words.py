"""Stochastic words: the stochastic unit as the compute engine has it, from banks to the lanes of the accumulators."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data

from ...lib.bits import select
from ...lib.trees import delayed
from ...timing.stochastic import StochasticWordsTiming
from ..array_unit import ArrayUnit
from .stochastic_unit import StochasticUnit

__all__ = ["StochasticWords"]


class StochasticWords(StochasticWordsTiming, ArrayUnit):
    """Sums of a block's products, by streams, for each pixel of a word and each of ``stochastic_rows`` rows, in units
    of int8 products.

    A word starts a cycle ahead of its pixels and stays as long as its streams are made (`WordPace`); ``latency`` cycles
    after the pixels of its last cycle its sums are there. Groups of output lanes are of ``stochastic_rows`` each.

    Golden model: ``sim.stochastic.circuits``.
    """

    def elaborate(self, platform):
        m = Module()
        config = self.config
        px, rows, banks = config.pixel_lanes, config.stochastic_rows, config.banks
        m.submodules.unit = unit = StochasticUnit(circuit=config.circuit, inputs=config.ic_lanes, rows=rows, pixels=px,
                                                  bits=config.stochastic_bits)
        taken = Signal.like(self.takes(self.finishing), name="taken")   # groups of output lanes whose sums these are
        m.d.sync += taken.eq(self.takes(self.finishing))
        first_bank = Signal.like(self.word.turn, name="first_bank")
        m.d.comb += [
            first_bank.eq(self.word.turn + self.word.lane),
            unit.start.eq(self.following.word_start),
            unit.length.eq(self.following.length),
            unit.made.eq(self.following.made),
            unit.load.eq(self.starts(self.word)),
            self.release.eq(delayed(m, self.starts(self.following), self.rows_copied(config), "starts")),
            Value.cast(unit.weights).eq(Value.cast(self.rows)),
            *[Value.cast(unit.pixels[pixel]).eq(select(
                first_bank, [self.pixels[(pixel + first) % banks] for first in range(banks)]))
              for pixel in range(px)],
        ]
        late = self.latency - self.shortest_latency(config)
        sums = data.View(unit.sums.shape(), delayed(m, Value.cast(unit.sums), late, "late"))
        for pixel in range(px):
            for lane in range(config.oc_lanes):
                group, row = divmod(lane, rows)
                m.d.comb += self.sums[pixel * config.oc_lanes + lane].eq(Mux(taken[group], sums[pixel * rows + row], 0))
        return m
