"""Gathered path: a box's pixels or the runs of its rows, on their way into the input buffer."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect, flipped

from ...arch.instruction_layout import queue_layout
from ...arch.isa import Queue
from ...buffers.entry_marks import entry_marks
from ...config import NpuConfig
from ...lib.bits import lanes_below
from ...timing.gather import GatheredPathTiming
from ..load_dispatch import LoadDispatch
from ..load_path import LoadPath, PlacedBox
from ..padded_walk import PaddedWalk
from ..phase_counter import count_down
from .inflight_boxes import InflightBoxes, PathBox
from .padded_bytes import PaddedBytes
from .run_gatherer import RunGatherer
from .run_settings import RunSettings
from .run_spans import SPAN_BITS, RunSpans
from .run_walk import RunBox, RunWalk

__all__ = ["GatheredBox", "GatheredPath"]

#: A box on its way: its rows, and what its runs need to know of it.
GatheredBox = data.StructLayout({**RunBox.members, **PathBox.members})


class GatheredPath(GatheredPathTiming, LoadPath):
    """Do what `PixelPath` does by way of a `RunGatherer`, and after a LOAD_GATHER bring runs of bytes instead.

    ``boxes`` come ahead of their pixels; those of one may enter while the runs of the one before it are still leaving.
    ``begin`` says where what is placed after it goes; ``post`` comes with a box's last run, if it posts a token. What
    sets it up, ``setting`` and ``geometry``, stands until it is ``drained``.

    Latency ``RunGatherer.LATENCY``; a pixel in and up to ``write_lanes`` out in a cycle.
    """

    POSTS = WORKS_WHEN_FULL = True      # the gatherer may be at work when nothing enters it

    def __init__(self, config: NpuConfig):
        self.settings = RunSettings(config)
        # Spans of the LOAD_GATHERs, in order, each there when its instruction can be taken.
        super().__init__(config, outer={"spans": In(stream.Signature(SPAN_BITS))}, ports={
            "boxes": In(stream.Signature(GatheredBox)),  # in order
            "begin": Out(1),     # what is placed from the next cycle on is of another box
            "base": Out(PathBox.members["base"]),  # first entry of that one
            "index": Out(PathBox.members["index"]),  # instruction of the box that is being placed
            "post": Out(1),      # a token, with the last that is placed of a box
            "drained": Out(1),   # no box is under way of which a run has not set out
            "idle": Out(1),      # nor one of which a run has not been placed
        })

    def supply(self, m: Module, engine: Any, requester: Any, writer: Any) -> None:
        """Spans are made while data is asked for."""
        m.submodules.spans = spans = RunSpans(self.config, depth=engine.CONTEXTS)
        connect(m, spans.spans, writer.spans)
        m.d.comb += [
            Value.cast(spans.word).eq(engine.queue.payload.word),
            spans.hand_on.eq(requester.hand_on),
        ]

    def is_idle(self) -> Value:
        return self.idle

    def is_drained(self) -> Value:
        return self.drained

    def box(self, dispatch: LoadDispatch, index: Value) -> PlacedBox:
        return PlacedBox(self.begin, self.base, self.index, self.post)

    def take_boxes(self, m: Module, dispatch: LoadDispatch, walk: PaddedWalk, *, entry: Any, tiled: Value) -> None:
        """A load's box goes to the walk, and one that goes this way to `boxes` at once."""
        box, gathered = dispatch.boxes.p, Signal()
        m.d.comb += [
            gathered.eq(~box.ring & ~tiled),
            dispatch.boxes.ready.eq(walk.boxes.ready & (self.boxes.ready | ~gathered)),
            walk.boxes.valid.eq(dispatch.boxes.valid & (self.boxes.ready | ~gathered)),
            walk.boxes.p.eq(box),
            self.boxes.valid.eq(dispatch.boxes.valid & walk.boxes.ready & gathered),
            self.boxes.p.blocks.eq(box.blocks),
            self.boxes.p.rows.eq(box.height),
            self.boxes.p.base.eq(dispatch.base),
            self.boxes.p.index.eq(entry.index),
            self.boxes.p.post.eq(data.View(queue_layout(Queue.LOAD), entry.word).load_act.post_compute),
        ]

    def elaborate(self, platform):
        m = Module()
        config, enter = self.config, self.enter
        m.submodules.settings = settings = self.settings
        m.submodules.bytes = padded = PaddedBytes(config)
        m.submodules.gatherer = gatherer = RunGatherer(config)
        connect(m, flipped(self.spans), settings.spans)
        m.d.comb += [
            settings.setting.eq(self.setting),
            settings.word.eq(self.word),
            settings.extent.eq(self.extent),
            self.settled.eq(settings.ready),
            self.left.eq(settings.left),
            self.width.eq(settings.width),
        ]

        # Of a row's data, only the first ``bytes`` bytes are. Whole beats that are left after this one: at -1 this one
        # is data in part, at -2 none of it is.
        beats_left = Signal(signed(len(settings.data_beats) + 1))
        whole, in_part = ~beats_left[-1] | ~settings.gathering, beats_left[-1] & beats_left[0]
        begin_row = enter.row_end | ~settings.ready
        counted = enter.is_data & (~beats_left[-1] | beats_left[0])
        with m.If(~settings.ready | (enter.valid & (enter.row_end | counted))):
            m.d.sync += beats_left.eq(count_down(begin_row, beats_left, settings.data_beats, first=1))
        tail = Mux(in_part, lanes_below(settings.data_bytes, config.beat_bytes), 0)
        with m.If(enter.is_data):
            m.d.comb += padded.data.eq(Mux(whole, ~0, tail))

        m.d.comb += [
            padded.geometry.eq(self.geometry),
            padded.beat.eq(enter.beat),
            *([padded.enter.eq(enter.valid)] if config.binary_rows else []),
            # Pixels that become tiles are whole and have no signs taken.
            self.pixel.eq(Mux(enter.is_data, enter.beat,
                              self.geometry.pad_value.as_unsigned().replicate(config.beat_bytes))),
            gatherer.enter.eq(enter.valid),
            gatherer.beat.eq(padded.bytes),
            gatherer.present.eq(padded.present),
            self.room.eq(gatherer.room),
            self.value.data.eq(gatherer.data),
            self.value.bytes.eq(gatherer.bytes),
        ]
        m.d.sync += [
            self.placed.lanes.eq(gatherer.emit),
            self.placed.row_end.eq(gatherer.row_end),
            self.placed.block_end.eq(gatherer.block_end),
            self.placed.next_entry.eq(gatherer.wrap),
            self.placed.run.eq(settings.gathering),
        ]
        self._boxes(m, gatherer)
        if config.binary_rows:
            m.d.comb += self.value.zero.eq(gatherer.zero)
        if config.local_store:
            self._keep(m, gatherer)
        return m

    def _boxes(self, m: Module, gatherer: RunGatherer) -> None:
        """A box goes to the walk and to those under way at once."""
        m.submodules.walk = walk = RunWalk(self.config)
        m.submodules.under_way = under_way = InflightBoxes()
        connect(m, walk.runs, gatherer.runs)
        box = self.boxes.p
        m.d.comb += [
            self.boxes.ready.eq(walk.boxes.ready & under_way.boxes.ready),
            walk.boxes.valid.eq(self.boxes.valid & under_way.boxes.ready),
            under_way.boxes.valid.eq(self.boxes.valid & walk.boxes.ready),
            *[walk.boxes.p[name].eq(box[name]) for name, _ in RunBox],
            *[under_way.boxes.p[name].eq(box[name]) for name, _ in PathBox],
            walk.layout.eq(self.settings.runs),
            walk.width.eq(self.settings.width),
            under_way.ending.eq(gatherer.emit[0] & gatherer.box_end),
            self.begin.eq(under_way.begin),
            self.base.eq(under_way.base),
            self.index.eq(under_way.at_hand.index),
            self.post.eq(under_way.end & under_way.at_hand.post),
            self.drained.eq(under_way.drained),
            self.idle.eq(under_way.idle),
        ]

    def _keep(self, m: Module, gatherer: RunGatherer) -> None:
        """Kept beats go round the gatherer and are as late as what leaves it."""
        kept, beat = self.kept.enable.any(), self.kept.payload
        m.d.comb += gatherer.hold.eq(kept)
        for number in range(1, self.LATENCY + 1):
            before, kept = kept, Signal(name=f"kept{number}")
            payload, beat = beat, Signal(len(beat), name=f"kept_beat{number}")
            m.d.sync += [kept.eq(before), beat.eq(payload)]
        with m.If(kept):
            m.d.comb += [self.value.data.eq(beat.replicate(self.config.write_lanes)),
                         *[self.value[mark.name].eq(mark.whole) for mark in entry_marks(self.config)]]
