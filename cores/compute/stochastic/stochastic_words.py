"""Stochastic words: the stochastic unit as the compute engine has it, from banks to the lanes of the accumulators."""

from amaranth.hdl import Cat, Module, Mux, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...arch.stochastic import sum_bits
from ...buffers.input_buffer import BankShape
from ...config import NpuConfig
from ...lib.bits import select
from .logic import delayed
from .stochastic_unit import StochasticUnit
from .stream_source import LogShape

__all__ = ["StochasticWords"]


class StochasticWords(wiring.Component):
    """Sums of a block's products, by streams, for each pixel of a word and each of ``stochastic_rows`` rows.

    A word starts a cycle ahead of its pixels and stays as long as its streams are made (`WordPace`); ``latency`` cycles
    behind the pixels of its last cycle its sums are there. Groups of output lanes are of ``stochastic_rows`` each.

    Golden model: ``sim.stochastic.circuits``. Raises ValueError unless ``latency`` is at least `shortest_latency`.
    """

    def __init__(self, config: NpuConfig, *, latency: int):
        if latency < self.shortest_latency(config):
            raise ValueError(f"latency must be at least {self.shortest_latency(config)}, not {latency!r}")
        self.config = config
        self.latency = latency
        super().__init__({
            "start": In(1),                 # a word begins
            "length": In(LogShape),         # with ``start``: logarithm of its streams' length
            "made": In(LogShape),           # with ``start``: of the bits that are made
            # A cycle behind ``start``, as read from the banks.
            "pixels": In(data.ArrayLayout(config.beat_bits, config.banks)),
            "first_bank": In(BankShape(config)),  # with them: that pixel 0 was read from
            "load": In(1),                  # with them: take the weights over, `weights_taken` cycles later
            "weights": In(data.ArrayLayout(config.beat_bits, config.stochastic_rows)),  # of each row
            # In the cycle of the sums: groups of output lanes that get the rows' sums; the others get zero.
            "take": In(config.stochastic_groups),
            # Of each pixel of each output lane, in units of int8 products.
            "sums": Out(data.ArrayLayout(signed(sum_bits(config.ic_lanes)), config.acc_lanes)),
        })

    @staticmethod
    def weights_taken(config: NpuConfig) -> int:
        """Cycles from a step's first pixels until its weights are copied."""
        return StochasticUnit.weights_taken(config.circuit)

    @staticmethod
    def shortest_latency(config: NpuConfig) -> int:
        """Cycles from the pixels of a word's last cycle to its sums where nothing makes them wait."""
        return StochasticUnit.drain(config.circuit, inputs=config.ic_lanes, bits=config.stochastic_bits) - 1

    def elaborate(self, platform):
        m = Module()
        config = self.config
        px, rows, banks = config.pixel_lanes, config.stochastic_rows, config.banks
        m.submodules.unit = unit = StochasticUnit(circuit=config.circuit, inputs=config.ic_lanes, rows=rows, pixels=px,
                                                  bits=config.stochastic_bits)
        m.d.comb += [
            *[getattr(unit, name).eq(getattr(self, name)) for name in ("start", "length", "made", "load")],
            Value.cast(unit.weights).eq(Value.cast(self.weights)),
            *[Value.cast(unit.pixels[pixel]).eq(select(
                self.first_bank, [self.pixels[(pixel + first) % banks] for first in range(banks)]))
              for pixel in range(px)],
        ]
        late = self.latency - self.shortest_latency(config)
        sums = data.View(unit.sums.shape(), delayed(m, Value.cast(unit.sums), late, "late"))
        taken = Cat(self.take)
        for pixel in range(px):
            for lane in range(config.oc_lanes):
                group, row = divmod(lane, rows)
                m.d.comb += self.sums[pixel * config.oc_lanes + lane].eq(Mux(taken[group], sums[pixel * rows + row], 0))
        return m
