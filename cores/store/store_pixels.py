"""The order in which a STORE takes its pixels."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect, flipped

from ..arch.instruction_layout import instruction_layout, is_kind
from ..arch.isa import Opcode, WordForm
from ..config import NpuConfig
from ..lib.component import Component
from ..lib.stream_buffer import StreamBuffer
from .parts import order_of, words_of
from .requantizer import SelectShape

__all__ = ["PixelPosition", "StorePixels"]


def PixelPosition(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """Accumulator word ``address`` of a pixel and its place in it, ``select`` (``pixel * oc_groups + group``).

    ``leaves``: the next column has another pixel. ``row_end``: the last of its row. ``block_start``, ``block_end``:
    first and last of its block. ``end``: the STORE's last. By name, what the machine's words have beside that
    (`PixelWords`).
    """
    return data.StructLayout({
        "address": range(config.acc_depth), "select": SelectShape(config), "leaves": 1, "row_end": 1,
        "block_start": 1, "block_end": 1, "end": 1,
        **words_of(config).POSITION,
    })


class StorePixels(Component):
    """Counts through a STORE's pixels: for block, row, column. ``restart`` begins, when the last STORE's are taken.

    A pixel's group is its block's, or in a STORE of one block goes with the column (SPREAD) or with the row
    (ALTERNATE). Of TILES a pixel has nine positions, a word each; four pixels share a place. With
    ``repeats`` so many columns more have the same pixel, up to the end of the row.

    A position a cycle, the first `latency` cycles after ``restart``. They are counted ahead, into a `StreamBuffer`:
    nothing that a pixel waits for is on the counters' paths. That a position is the last of something is known from
    registers, set when it is reached. One that is to come from a bank, which has no such word, is not offered:
    ``beyond`` rises when it would be, or earlier, and no further position follows.
    """

    @staticmethod
    def latency(config: NpuConfig) -> int:
        """Cycles from ``restart`` to the first position: counters, buffer; Winograd: a position's offset, its word."""
        return 1 + StreamBuffer.LATENCY + words_of(config).LATENCY

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "restart": In(1),                       # begin the STORE
            "geometry": In(instruction_layout(Opcode.STORE_SET)),  # stands still from a cycle before ``restart`` on
            "store": In(instruction_layout(Opcode.STORE)),  # stands still from ``restart`` on
            **order_of(config).PORTS,               # of the chain, which stands still as well
            "position": Out(stream.Signature(PixelPosition(config))),  # of a pixel, or of a word of its sum
            "beyond": Out(1),                       # there is no word for the position after those offered
        })

    def elaborate(self, platform):
        m = Module()
        config, geometry, store = self.config, self.geometry, self.store
        m.submodules.buffer = buffer = StreamBuffer(PixelPosition(config))
        connect(m, buffer.output, flipped(self.position))

        # -- which pixel ----------------------------------------------------------------------------------------------
        cols_left = Signal.like(geometry.cols, name="cols_left", reset_less=True)
        rows_left = Signal.like(geometry.rows, name="rows_left", reset_less=True)
        blocks_left = Signal.like(store.blocks, name="blocks_left", reset_less=True)
        repeats_left = Signal.like(store.repeats, name="repeats_left", reset_less=True)
        active, step = Signal(), Signal()   # there is a pixel; the next one's turn comes
        # This column, row, block or copy is the last one.
        last_col, last_row, last_block, last_copy = (
            Signal(name=name, reset_less=True) for name in ("last_col", "last_row", "last_block", "last_copy"))
        one_col, one_row, one_copy = (Signal(name=name) for name in ("one_col", "one_row", "one_copy"))
        block_start = Signal()
        leaves, block_end, end = Signal(), Signal(), Signal()
        m.d.sync += [one_col.eq(geometry.cols == 1), one_row.eq(geometry.rows == 1)]
        m.d.comb += [
            one_copy.eq(store.repeats == 0),
            leaves.eq(last_col | last_copy),
            block_end.eq(last_col & last_row),
            end.eq(block_end & last_block),
        ]
        with m.If(self.restart):
            m.d.sync += [
                active.eq(1), block_start.eq(1),
                cols_left.eq(geometry.cols), last_col.eq(one_col),
                rows_left.eq(geometry.rows), last_row.eq(one_row),
                blocks_left.eq(store.blocks), last_block.eq(store.blocks == 1),
                repeats_left.eq(store.repeats), last_copy.eq(one_copy),
            ]
        with m.Elif(step):
            m.d.sync += [
                active.eq(~end), block_start.eq(block_end),
                cols_left.eq(Mux(last_col, geometry.cols, cols_left - 1)),
                last_col.eq(Mux(last_col, one_col, cols_left == 2)),
                repeats_left.eq(Mux(leaves, store.repeats, repeats_left - 1)),
                last_copy.eq(Mux(leaves, one_copy, repeats_left == 1)),
            ]
            with m.If(last_col):
                m.d.sync += [
                    rows_left.eq(Mux(last_row, geometry.rows, rows_left - 1)),
                    last_row.eq(Mux(last_row, one_row, rows_left == 2)),
                ]
            with m.If(block_end):
                m.d.sync += [blocks_left.eq(blocks_left - 1), last_block.eq(blocks_left == 2)]

        # -- where it is ----------------------------------------------------------------------------------------------
        word = Signal(range(2 * config.acc_depth))
        # Both counters wrap at the places they select from; with a single place they have no bits.
        group_bits = (config.oc_groups - 1).bit_length()
        place = Signal(SelectShape(config))
        group, pixel = place[:group_bits], place[group_bits:]
        groups_share = config.groups_share
        spread, alternate = (is_kind(geometry.words, form, config) for form in (WordForm.SPREAD, WordForm.ALTERNATE))
        row_start = Signal.like(word, name="row_start", reset_less=True)
        order = order_of(config)
        order.begin(m, self, word, step)
        with m.If(self.restart):
            m.d.sync += [place.eq(0), word.eq(0)]
            if groups_share:
                m.d.sync += row_start.eq(0)
        with m.Elif(step):
            group_end: Value = leaves
            if config.pixel_lanes > 1:
                # An odd row leaves the last word's other pixel out.
                group_end = last_col | (leaves & pixel.all())
                m.d.sync += pixel.eq(Mux(last_col, 0, pixel + leaves))
            word_end = last_col | (group_end & (group.all() | ~spread)) if groups_share else group_end
            with m.If(block_end):
                m.d.sync += word.eq(0)
                if config.oc_groups > 1:
                    m.d.sync += group.eq(group + 1)
            with m.Elif(word_end):
                m.d.sync += word.eq(order.last_word(last_col) + 1)
            if groups_share:
                with m.If(spread & group_end):
                    m.d.sync += group.eq(Mux(last_col, 0, group + 1))
                with m.Elif(alternate & last_col):
                    m.d.sync += group.eq(group + 1)
                    with m.If(group.all()):
                        m.d.sync += row_start.eq(word + 1)
                    with m.Else():
                        # The next row has the same words.
                        m.d.sync += word.eq(row_start)

        found: dict[str, Value] = {"select": place, "leaves": leaves, "row_end": last_col, "block_start": block_start,
                 "block_end": block_end, "end": end}
        words_of(config).positions(m, self, buffer.input, found, active=active, step=step, word=word, pixel=pixel,
                                   order=order)
        return m
