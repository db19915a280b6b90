"""Line memory of the Winograd transformer: the rows of pixels that tiles are cut from."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from ...arch.instruction_layout import field_shape
from ...arch.isa import MAX_TILE_COLS, Opcode
from ...config import NpuConfig
from ...lib.component import Component
from ...lib.stream_buffer import StreamBuffer
from ...timing.winograd import WinogradLinesTiming

__all__ = ["TilePixel", "WinogradLines"]

#: Columns of a row; a tile begins every second one, and the last needs two more.
_COLUMNS = 2 * (MAX_TILE_COLS + 1)


def TilePixel(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """A padded box's next pixel: the last of its row, of its block; in the last block?"""
    return data.StructLayout({"data": config.beat_bits, "row_end": 1, "block_end": 1, "end": 1})


class WinogradLines(WinogradLinesTiming, Component):
    """Eight rows of up to 128 pixels, written in turn, a pixel a cycle; two of them are read at once, latency 1.

    Rows come and go in pairs, as tiles of 4x4 overlap by two rows. ``valid``: the upper and the lower pair of a row of
    tiles are there. One row of each pair is read. Pairs are in two memories in turn, hence ``swapped``.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "tile_cols": In(field_shape(Opcode.LOAD_WINOGRAD, "tile_cols")),             # tiles of a row
            "pixels": In(stream.Signature(TilePixel(config))),  # of the box, padding included
            # A row that is not ``2 * tile_cols + 2`` pixels, a block that is not of four rows, six, eight ....
            "malformed": Out(1),
            "valid": Out(1),                # both pairs of rows of a row of tiles are there
            "swapped": Out(1),              # ``read`` has the lower pair's pixel in front
            "block_end": Out(1),            # no more such rows come from this block
            "end": Out(1),                  # no more such rows come from this box
            "column": In(range(_COLUMNS)),  # to be read
            "upper_row": In(1),             # of the upper pair: the row to be read
            "lower_row": In(1),             # of the lower pair
            "read": Out(data.ArrayLayout(config.beat_bits, 2)),  # a pixel of each pair, a cycle later
            # The row of tiles is made: its upper pair is free, at the block's end both are.
            "release": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        # What a pixel is comes late, so it waits in front of the rows.
        m.submodules.buffer = buffer = StreamBuffer(TilePixel(self.config))
        connect(m, flipped(self.pixels), buffer.input)
        pixel = buffer.output.payload
        head = Signal(range(self.PAIRS))                                  # pair being written
        tail = Signal(range(self.PAIRS))                                  # upper pair
        held = Signal(self.PAIRS)                                         # so many 1 as there are complete pairs
        full = held[-1]
        column = Signal(range(_COLUMNS + 1))
        row = Signal()
        later = Signal()                                              # not the block's first pair
        flags = [Signal(2, name=f"flags{pair}") for pair in range(self.PAIRS)]

        write, complete, kept = Signal(), Signal(), Signal.like(held)
        m.d.comb += [
            buffer.output.ready.eq(~full),
            write.eq(buffer.output.valid & ~full),
            complete.eq(write & pixel.row_end & row),
            self.malformed.eq(write & (column[-1] | (pixel.row_end & (
                (column[1:] != self.tile_cols) | ~column[0] | (pixel.block_end & ~(row & later)))))),
        ]
        m.d.comb += [kept.eq(Mux(self.release, Mux(self.block_end, held >> 2, held >> 1), held)),
                     self.valid.eq(held[1])]
        m.d.sync += held.eq(Mux(complete, Cat(Const(1, 1), kept), kept))
        with m.If(self.release):
            m.d.sync += tail.eq(tail + Mux(self.block_end, 2, 1))
        with m.If(write):
            m.d.sync += column.eq(Mux(pixel.row_end, 0, column + 1))
            with m.If(pixel.row_end):
                m.d.sync += row.eq(~row)
        with m.If(complete):
            m.d.sync += [head.eq(head + 1), later.eq(~pixel.block_end)]
            with m.Switch(head):
                for written, signal in enumerate(flags):
                    with m.Case(written):
                        m.d.sync += signal.eq(Cat(pixel.block_end, pixel.block_end & pixel.end))

        lower = Signal(2)
        with m.Switch(tail):
            for first in range(self.PAIRS):
                with m.Case(first):
                    m.d.comb += lower.eq(flags[(first + 1) % self.PAIRS])
        m.d.comb += [
            self.swapped.eq(tail[0]),
            Cat(self.block_end, self.end).eq(lower),
        ]

        # The pair in memory 0 is the upper one if ``tail`` is even, else the one after it.
        places = [(Mux(tail[0], self.lower_row, self.upper_row), tail[1] ^ tail[0]),
                  (Mux(tail[0], self.upper_row, self.lower_row), tail[1])]
        for number, (line, pair) in enumerate(places):
            memory: Memory
            m.submodules[f"rows{number}"] = memory = Memory(
                shape=self.config.beat_bits, depth=_COLUMNS * self.PAIRS, init=[])
            port, read = memory.write_port(), memory.read_port()
            m.d.comb += [
                port.en.eq(write & (head[0] == number)),
                port.addr.eq(Cat(column[:-1], row, head[1])),
                port.data.eq(pixel.data),
                read.addr.eq(Cat(self.column, line, pair)),
                read.en.eq(1),
                self.read[number].eq(read.data),
            ]
        return m
