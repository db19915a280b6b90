"""Pool unit: maximum or sum of windows, beside the multiplier array."""

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect, flipped

from ..arch.numerics import POOL_WIDTH
from ..buffers.input_buffer import BankShape
from ..config import NpuConfig
from ..lib.bits import select
from ..lib.component import Component, record
from ..lib.fifo import Fifo
from ..timing.compute import PoolUnitTiming

__all__ = ["PoolUnit"]


class PoolUnit(PoolUnitTiming, Component):
    """Reduce the taps of a window, channel by channel: one tap of ``ic_lanes`` channels a cycle.

    Golden model: ``sim.golden.pool_accumulate``.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "enable": In(1),                      # the pixels hold a tap
            "start": In(1),                       # the window's first
            "end": In(1),                         # the window's last
            "maximum": In(1),                     # of the window's taps, not their sum
            "pixel_bank": In(BankShape(config)),  # the tap's
            # Straight from the banks.
            "pixels": In(data.ArrayLayout(data.ArrayLayout(signed(8), config.ic_lanes), config.banks)),
            "ready": Out(1, init=1),  # type: ignore[call-arg]  # there is room for one more window besides those under way
            "idle": Out(1),                       # nothing is under way or waits to be taken
            "output": Out(stream.Signature(data.ArrayLayout(signed(POOL_WIDTH), config.ic_lanes))),  # windows' results
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.fifo = fifo = Fifo(width=POOL_WIDTH * config.ic_lanes, depth=self.FIFO_DEPTH)

        enable, start, end, maximum, finished = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.sync += [
            enable.eq(self.enable),
            start.eq(self.start),
            end.eq(self.enable & self.end),
            maximum.eq(self.maximum),
            finished.eq(end),
        ]
        results = record(data.ArrayLayout(signed(POOL_WIDTH), config.ic_lanes), reset_less=True)
        for channel in range(config.ic_lanes):
            tap = Signal(signed(8), name=f"tap{channel}", reset_less=True)
            m.d.sync += tap.eq(select(self.pixel_bank, [self.pixels[bank][channel] for bank in range(config.banks)]))
            result = results[channel]
            greater = tap > result[:8].as_signed()
            with m.If(enable):
                with m.If(start | (maximum & greater)):
                    m.d.sync += result.eq(tap)
                with m.Elif(~maximum):
                    m.d.sync += result.eq(result + tap)
        connect(m, fifo.r_stream, flipped(self.output))
        m.d.sync += self.ready.eq(fifo.level <= self.SLOTS - 1)
        m.d.comb += [
            fifo.w_en.eq(finished),
            fifo.w_data.eq(results),
            self.idle.eq(~enable & ~finished & ~self.output.valid),
        ]
        return m
