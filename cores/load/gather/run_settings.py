"""Run settings: what LOAD_SET and LOAD_GATHER say of the rows of the loads after them."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from ...arch.instruction_layout import field_shape, is_kind, queue_layout
from ...arch.isa import EntryForm, Opcode, Queue
from ...config import NpuConfig
from ...lib.component import Component
from ...timing.gather import RunSettingsTiming
from ..load_context import EXTENT_BITS
from ..load_dispatch import Setting
from ..padded_walk import Box
from .run_spans import SPAN_BITS, run_length
from .run_walk import RunLayout

__all__ = ["RunSettings"]


class RunSettings(RunSettingsTiming, Component):
    """The runs of a row, and the beats of padding in front of its data and after them.

    After LOAD_SET a run is a pixel, of SIGNS the second eighth of one, of SIGN_PAIRS the first two of all but
    the row's first (`PaddedBytes`). ``data_beats`` and ``data_bytes``: where data end in a row, counted from its first
    fetched beat; what is after them counts as padding. Settings are good when ``ready``: a cycle after ``setting``,
    and for LOAD_GATHER `GATHER_CYCLES` more. The span of a LOAD_GATHER has to be there when it is taken.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        shift = (config.beat_bytes - 1).bit_length()
        super().__init__({
            "setting": In(Setting),             # an instruction that sets something is taken
            "word": In(queue_layout(Queue.LOAD)),  # that instruction
            "extent": In(EXTENT_BITS),          # beats of a row with its padding, if it is a LOAD_SET
            "spans": In(stream.Signature(SPAN_BITS)),  # of the LOAD_GATHERs, in order
            "ready": Out(1),                    # what follows from the last one is there
            "gathering": Out(1),                # the last one was LOAD_GATHER
            "runs": Out(RunLayout(config)),     # of a row
            "left": Out(field_shape(Opcode.LOAD_SET, "pad_left")),  # beats of padding in front of its data
            "width": Out(Box.members["width"]),  # beats of a row, padding included
            "data_beats": Out(17 - shift),      # whole beats of data in a row, from its first fetched one
            "data_bytes": Out(shift),           # bytes of data in the beat after these
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.config.beat_bytes
        shift = (lanes - 1).bit_length()
        plain, gather = self.word.load_set, self.word.load_gather
        cols = Signal.like(plain.cols)
        waiting = Signal()      # the span is there, what follows from it is not
        span = Signal(SPAN_BITS)
        available = Signal(len(cols) + 1)   # beats to the end of the row's pixels, padding in front included
        m.d.sync += waiting.eq(0)
        with m.If(waiting):
            m.d.sync += self.width.eq(Mux(span > available, span, available))
        m.d.comb += [self.ready.eq(~waiting), self.spans.ready.eq(self.setting.load_gather)]

        first = Signal.like(gather.start)
        length = Signal.like(self.runs.length)
        left = Signal.like(self.left)
        before = Mux(first < 0, first >> shift, 0)      # first beat of a row, counted from its data's: 0 or below
        m.d.comb += [
            first.eq(gather.start),
            length.eq(run_length(gather, lanes)),
            left.eq(-before),
        ]
        with m.If(self.setting.load_set):
            m.d.sync += [
                Value.cast(self.runs).eq(0),
                self.runs.outputs.eq(self.extent),
                self.runs.length.eq(lanes),
                self.runs.step.eq(lanes),
                self.left.eq(plain.pad_left),
                self.width.eq(self.extent),
                self.gathering.eq(0),
                cols.eq(plain.cols),
            ]
        if self.config.binary_rows:
            one, paired = self.config.sign_bytes, is_kind(plain.form, EntryForm.SIGN_PAIRS, self.config)
            with m.If(self.setting.load_set & (paired | is_kind(plain.form, EntryForm.SIGNS, self.config))):
                m.d.sync += [
                    self.runs.outputs.eq(self.extent - paired),
                    self.runs.length.eq(Mux(paired, 2 * one, one)),
                    self.runs.offset.eq(Mux(paired, 0, one)),
                    self.runs.skip.eq(paired),
                ]
        with m.If(self.setting.load_gather):
            m.d.sync += [
                self.runs.outputs.eq(gather.outputs),
                self.runs.length.eq(length),
                self.runs.step.eq(gather.step),
                self.runs.offset.eq(first[:shift]),
                self.runs.skip.eq(Mux(first < 0, 0, first >> shift)),
                self.runs.place.eq(gather.place),
                self.runs.pairs.eq((gather.step <= lanes) if self.config.write_lanes > 1 else 0),
                self.left.eq(left),
                available.eq(cols - before),    # one sum, not that of ``left`` and another
                self.gathering.eq(1),
                self.data_beats.eq(gather.bytes >> shift),
                self.data_bytes.eq(gather.bytes[:shift]),
                span.eq(self.spans.payload),
                waiting.eq(1),
            ]
        return m
