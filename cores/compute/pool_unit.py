"""Pool unit: maximum or sum of windows, beside the multiplier array."""

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Module, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..arch.numerics import POOL_WIDTH
from ..buffers.input_buffer import BankShape
from ..config import NpuConfig
from ..lib.bits import select
from ..lib.component import Component, record
from ..lib.fifo import Fifo
from ..timing.compute import ComputeEngineTiming
from ..timing.pool import PoolUnitTiming

__all__ = ["PoolUnit"]


class PoolUnit(PoolUnitTiming, Component):
    """Reduce the taps of a window, channel by channel: one tap of ``ic_lanes`` channels a cycle.

    Golden model: ``sim.golden.pool_accumulate``.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__(self.ports(config))

    @staticmethod
    def ports(config: NpuConfig) -> dict[str, wiring.Member]:
        """All of its ports."""
        return {
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
        }

    def follow(self, issued: Any, sequencer: Any) -> list[Any]:
        """Statements that connect what only this form has: to what was ``issued`` for the pixels, and the sequencer."""
        return []

    def windows(self) -> Value:
        """Whether the pixels hold a window's tap."""
        return self.enable

    def joined(self, m: Module, taps: Sequence[Value], finished: Value, results: Value) -> tuple[Value, Value, Value]:
        """Whether there is a result, which, and whether any is on the way: of windows, which are ``finished``, and of
        what else is made of the ``taps``, a pixel's channels a cycle later.
        """
        return finished, results, finished

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.fifo = fifo = Fifo(width=POOL_WIDTH * config.ic_lanes, depth=self.FIFO_DEPTH)

        enable, start, end, maximum, finished = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.sync += [
            enable.eq(self.windows()),
            start.eq(self.start),
            end.eq(self.windows() & self.end),
            maximum.eq(self.maximum),
            finished.eq(end),
        ]
        results = record(data.ArrayLayout(signed(POOL_WIDTH), config.ic_lanes), reset_less=True)
        taps = []
        for channel in range(config.ic_lanes):
            tap = Signal(signed(8), name=f"tap{channel}", reset_less=True)
            m.d.sync += tap.eq(select(self.pixel_bank, [self.pixels[bank][channel] for bank in range(config.banks)]))
            taps.append(tap)
            result = results[channel]
            greater = tap > result[:8].as_signed()
            with m.If(enable):
                with m.If(start | (maximum & greater)):
                    m.d.sync += result.eq(tap)
                with m.Elif(~maximum):
                    m.d.sync += result.eq(result + tap)
        connect(m, fifo.r_stream, flipped(self.output))
        m.d.sync += self.ready.eq(fifo.level <= ComputeEngineTiming.pool_slots(config) - 1)
        write, values, works = self.joined(m, taps, finished, results)
        m.d.comb += [
            fifo.w_en.eq(write),
            fifo.w_data.eq(values),
            self.idle.eq(~enable & ~works & ~self.output.valid),
        ]
        return m
