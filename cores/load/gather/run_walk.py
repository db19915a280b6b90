"""Run walk: the runs of a box in their order, and the beats that each of them is made of."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect, flipped

from ...arch.instruction_layout import field_shape
from ...arch.isa import LAYOUTS, Opcode
from ...config import NpuConfig
from ...lib.component import Component, record
from ...lib.stream_buffer import StreamBuffer
from ...timing.gather import RunWalkTiming
from ..load_context import EXTENT_BITS
from ..padded_walk import Box
from ..phase_counter import count_down
from .byte_window import ByteWindow

__all__ = ["Run", "RunBox", "RunLayout", "RunWalk", "beat_number"]

_BITS = {field.name: field.bits for field in LAYOUTS[Opcode.LOAD_GATHER]}

#: ``blocks`` times ``rows`` rows of runs, padding included.
RunBox = data.StructLayout({"blocks": field_shape(Opcode.LOAD_ACT, "blocks"), "rows": EXTENT_BITS})


def RunLayout(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """The runs of a row: ``outputs`` of them, ``step`` bytes apart, the first at ``offset`` after ``skip`` beats.

    Byte ``i`` of a run goes to byte ``place + i`` of an entry, as far as there is such a byte. ``length`` is at most a
    beat. ``pairs``: ``write_lanes`` runs in a cycle; ``step`` is at most a beat then.
    """
    return data.StructLayout({
        "outputs": unsigned(_BITS["outputs"] + 1),
        "length": range(config.beat_bytes + 1),
        "step": unsigned(_BITS["step"]),
        "offset": range(config.beat_bytes),
        "skip": unsigned(2),
        "place": range(config.beat_bytes),
        "pairs": unsigned(1),
    })


def beat_number(config: NpuConfig) -> int:
    """Bits of a beat's number, which wraps: two of beats as far apart as a row has them differ by a signed number."""
    shift = (config.beat_bytes - 1).bit_length()
    return _BITS["outputs"] + _BITS["step"] - shift + 2


def Run(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """A run, or as many as go at once (``alone`` is 0).

    It begins in the beat of number ``first`` and is there when ``last`` is. Each begins at byte ``offset`` of a beat in
    ``slot``; they go to the bytes from ``place`` on and below ``end`` of their entries. ``row_end``, ``block_end``,
    ``box_end``: they are the last of their row, its block, and that of its box.
    """
    lanes, runs = config.beat_bytes, config.write_lanes
    return data.StructLayout({
        "first": beat_number(config),
        "last": beat_number(config),
        "alone": 1,
        "slot": data.ArrayLayout(range(ByteWindow.SLOTS), runs),
        "offset": data.ArrayLayout(range(lanes), runs),
        "place": range(lanes),
        "end": range(2 * lanes),
        "row_end": 1,
        "block_end": 1,
        "box_end": 1,
    })


class RunWalk(RunWalkTiming, Component):
    """Go through the runs of boxes, a run or a pair a cycle, ahead of their beats.

    Beats are numbered from reset on, row after row and box after box; a row has ``width``. The next box is taken when
    the last row of the one before it is under way; its first run comes `LATENCY` cycles after it at the soonest.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "boxes": In(stream.Signature(RunBox)),  # to be gone through
            "layout": In(RunLayout(config)),        # of their rows; stands from the cycle after a box to its last run
            "width": In(Box.members["width"]),      # beats of a row, as ``layout``
            "runs": Out(stream.Signature(Run(config))),  # in order
        })

    def elaborate(self, platform):
        m = Module()
        config, layout = self.config, self.layout
        m.submodules.buffer = buffer = StreamBuffer(Run(config))
        connect(m, buffer.output, flipped(self.runs))
        run = buffer.input.p
        shift = (config.beat_bytes - 1).bit_length()
        pairs = layout.pairs if config.write_lanes > 1 else Const(0)

        # -- counters -------------------------------------------------------------------------------------------------
        # The box at hand, or the next one: in the last row nothing of the one at hand is needed any more.
        box = record(RunBox)
        fresh = Signal()
        walking = Signal()
        # What is left after the runs at hand, their row and their block, less one: see `count_down`.
        outputs_left, rows_left, blocks_left = (Signal(bits, name=name) for name, bits in (
            ("outputs_left", len(layout.outputs) + 2), ("rows_left", EXTENT_BITS + 1),
            ("blocks_left", len(box.blocks) + 1)))
        step, over = Signal(), Signal()
        begin_row = Signal()        # with the next step, or until there is a box
        m.d.comb += [
            self.boxes.ready.eq(~fresh & (~walking | (rows_left[-1] & blocks_left[-1]))),
            buffer.input.valid.eq(walking),
            step.eq(walking & buffer.input.ready),
            over.eq(~walking | (step & run.box_end)),
            begin_row.eq(~walking | run.row_end),
            run.row_end.eq(outputs_left[-1]),
            run.block_end.eq(run.row_end & rows_left[-1]),
            run.box_end.eq(run.block_end & blocks_left[-1]),
            run.alone.eq(~pairs | (run.row_end & ~outputs_left[0])),    # also the last of an odd row
        ]
        with m.If(step | ~walking):     # two of a pair; a row begins a run, or two, further
            m.d.sync += outputs_left.eq(
                Mux(begin_row, layout.outputs, outputs_left) - Mux(begin_row, Mux(pairs, 3, 2), Mux(pairs, 2, 1)))
        with m.If(~walking | (step & run.row_end)):
            m.d.sync += rows_left.eq(count_down(~walking | rows_left[-1], rows_left, box.rows, first=2))
        with m.If(~walking | (step & run.block_end)):
            m.d.sync += blocks_left.eq(count_down(~walking | blocks_left[-1], blocks_left, box.blocks, first=2))
        with m.If(over):
            m.d.sync += [walking.eq(fresh), fresh.eq(0)]
        with m.If(self.boxes.valid & self.boxes.ready):
            m.d.sync += [box.eq(self.boxes.p), fresh.eq(1)]

        # -- beats ----------------------------------------------------------------------------------------------------
        # Byte of the beats at which the present run begins, and number of the next row's first beat.
        position = Signal(beat_number(config) + shift)
        next_row = Signal(beat_number(config))
        with m.If(step | ~walking):
            m.d.sync += position.eq(
                Mux(begin_row, Cat(layout.offset, next_row), position)
                + Mux(begin_row, layout.skip << shift, Mux(pairs, layout.step << 1, layout.step)))
        with m.If(Mux(over, fresh, step & run.row_end)):
            m.d.sync += next_row.eq(next_row + self.width)
        # Bytes from a run's first to its last, and to the last of its neighbour.
        reach = Signal(range(config.beat_bytes))
        reach_of_pair = Signal(range(2 * config.beat_bytes))
        m.d.sync += [reach.eq(layout.length - 1), reach_of_pair.eq(layout.length - 1 + layout.step)]
        m.d.comb += [
            run.first.eq(position[shift:]),
            run.last.eq((position + Mux(run.alone, reach, reach_of_pair))[shift:]),
        ]
        for number in range(config.write_lanes):
            begin = Signal(shift + len(run.slot[0]), name=f"begin{number}")
            m.d.comb += [
                begin.eq(position + (Mux(pairs, layout.step, 0) if number else 0)),
                run.offset[number].eq(begin),
                run.slot[number].eq(begin[shift:]),
            ]

        # -- entries --------------------------------------------------------------------------------------------------
        m.d.comb += run.end.eq(run.place + layout.length)
        place = Signal.like(run.place)      # in an entry
        m.d.comb += run.place.eq(place)
        with m.If(over):
            m.d.sync += place.eq(layout.place)
        with m.Elif(step & run.block_end):
            m.d.sync += place.eq(run.end)
        return m
