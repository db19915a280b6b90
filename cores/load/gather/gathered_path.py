"""Gathered path: a box's pixels or the runs of its rows, on their way into the input buffer."""

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import wiring

from ...config import NpuConfig
from ...lib.bits import lanes_below
from ..pixel_path import path_ports
from .padded_bytes import PaddedBytes
from .run_gatherer import RunGatherer
from .run_settings import RunSettings

__all__ = ["GatheredPath"]


class GatheredPath(wiring.Component):
    """Do what `PixelPath` does by way of a `RunGatherer`, and behind a LOAD_GATHER bring runs of bytes instead.

    Latency ``RunGatherer.LATENCY``; a pixel in and up to ``write_lanes`` out in a cycle.
    """

    LATENCY = RunGatherer.LATENCY
    #: Cycles from a box's last run or beat, the later one, to ``finish``.
    FINISH_CYCLES = 1
    #: Cycles from ``start`` until a beat may enter.
    START_CYCLES = 1

    def __init__(self, config: NpuConfig):
        self.config = config
        self.settings = RunSettings(config)
        super().__init__(path_ports(config))

    def elaborate(self, platform):
        m = Module()
        config, enter = self.config, self.enter
        m.submodules.settings = settings = self.settings
        m.submodules.bytes = padded = PaddedBytes(config)
        m.submodules.gatherer = gatherer = RunGatherer(config)
        m.d.comb += [
            settings.setting.eq(self.setting),
            settings.word.eq(self.word),
            settings.extent.eq(self.extent),
            self.settled.eq(settings.ready),
            self.left.eq(settings.left),
            self.width.eq(settings.width),
        ]

        # Of a row's data, only the first ``bytes`` bytes are. Whole beats that are left behind this one: at -1 this one
        # is data in part, at -2 none of it is.
        feeding, beats_left = Signal(), Signal(signed(len(settings.data_beats) + 1))
        whole, in_part = ~beats_left[-1] | ~settings.gathering, beats_left[-1] & beats_left[0]
        with m.If(enter.valid):
            with m.If(enter.row_end):
                m.d.sync += beats_left.eq(settings.data_beats - 1)
            with m.Elif(enter.is_data & (~beats_left[-1] | beats_left[0])):
                m.d.sync += beats_left.eq(beats_left - 1)
            with m.If(enter.end):
                m.d.sync += feeding.eq(0)
        with m.If(self.start):
            m.d.sync += [feeding.eq(1), beats_left.eq(settings.data_beats - 1)]
        tail = Mux(in_part, lanes_below(settings.data_bytes, config.beat_bytes), 0)
        with m.If(enter.is_data):
            m.d.comb += padded.data.eq(Mux(whole, ~0, tail))

        m.d.comb += [
            padded.geometry.eq(self.geometry),
            padded.beat.eq(enter.beat),
            self.pixel.eq(Value.cast(padded.bytes)),

            gatherer.start.eq(self.start),
            gatherer.runs.eq(settings.runs),
            gatherer.blocks.eq(self.box.blocks),
            gatherer.rows.eq(self.box.height),
            gatherer.enter.eq(enter.valid),
            gatherer.enter_last.eq(enter.row_end),
            gatherer.beat.eq(padded.bytes),
            gatherer.present.eq(padded.present),
            self.room.eq(feeding & gatherer.room),

            self.value.data.eq(gatherer.data),
            self.value.bytes.eq(gatherer.bytes),
        ]
        m.d.sync += [
            self.placed.lanes.eq(gatherer.emit),
            self.placed.row_end.eq(gatherer.row_end),
            self.placed.block_end.eq(gatherer.block_end),
            self.placed.next_entry.eq(gatherer.wrap),
            self.placed.run.eq(settings.gathering),
            self.finish.eq(gatherer.finish),
        ]
        if config.binary_rows:
            m.d.comb += self.value.zero.eq(gatherer.zero)
        if config.local_store:
            self._keep(m, gatherer)
        return m

    def _keep(self, m: Module, gatherer: RunGatherer) -> None:
        """Kept beats go round the gatherer and are as late as what leaves it."""
        kept, beat = self.kept.enable.any(), self.kept.payload
        m.d.comb += gatherer.hold.eq(kept)
        for number in range(1, self.LATENCY + 1):
            before, kept = kept, Signal(name=f"kept{number}")
            payload, beat = beat, Signal(len(beat), name=f"kept_beat{number}")
            m.d.sync += [kept.eq(before), beat.eq(payload)]
        with m.If(kept):
            m.d.comb += [self.value.data.eq(beat.replicate(self.config.write_lanes)), self.value.bytes.eq(~0)]
            if self.config.binary_rows:
                m.d.comb += self.value.zero.eq(0)
