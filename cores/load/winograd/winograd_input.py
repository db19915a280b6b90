"""Winograd transformer: boxes of pixels become transformed tiles in the input buffer."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from ...arch.instruction_layout import INDEX_BITS, instruction_layout
from ...arch.isa import Opcode
from ...buffers.input_buffer import ENTRY_BITS, BankShape, buffer_address_bits
from ...config import NpuConfig
from ...lib.component import Component, record
from ...timing.winograd import WinogradInputTiming
from ..phase_counter import count_down
from .winograd_lane import COLUMN_BITS, Operation, WinogradLane
from .winograd_lines import TilePixel, WinogradLines

__all__ = ["TileEntry", "TileLoad", "WinogradInput"]


def _geometry(opcode: Opcode, *names: str) -> dict:
    return {name: instruction_layout(opcode).members[name] for name in names}


#: What the transformer has to know of a LOAD_ACT.
TileLoad = data.StructLayout({
    **_geometry(Opcode.LOAD_ACT, "buf_base", "post_compute"),
    **_geometry(Opcode.LOAD_SET, "buf_block_pitch"),
    **_geometry(Opcode.LOAD_WINOGRAD, "shifts", "tile_cols", "position_pitch"),
    "index": INDEX_BITS,
})


def TileEntry(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """An entry for the input buffer; ``post`` with the last one of a LOAD_ACT that posts a token."""
    return data.StructLayout({
        "bank": BankShape(config), "address": buffer_address_bits(config), "data": config.entry_bits, "post": 1})


class WinogradInput(WinogradInputTiming, Component):
    """V = B^T d B of every tile d of the box that ``start`` announces, an entry a cycle.

    A tile takes `TILE_CYCLES`. Vertical sums of a pair of columns take `COLUMN_CYCLES` and are made ahead, so rows and
    blocks follow one another without a gap if the pixels are there: four complete rows of pixels for a row of tiles.

    Golden model: ``sim.golden.winograd_input``.
    """

    def __init__(self, config: NpuConfig):
        if not config.winograd:
            raise ValueError("winograd must be 1 or 2, not 0")
        self.config = config
        super().__init__({
            "start": In(1),            # begin a box; only while ``idle``
            "load": In(TileLoad),      # what is to be known of it
            "pixels": In(stream.Signature(TilePixel(config))),  # of the box, padding included
            "entries": Out(stream.Signature(TileEntry(config))),  # transformed, for the input buffer
            # A cycle ago: an entry beyond the input buffer, or a box that is not made of tiles.
            "overrun": Out(1),
            "index": Out(INDEX_BITS),  # load at hand
            "idle": Out(1),            # no tiles are being made
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        narrow = config.winograd == 1
        m.submodules.lines = lines = WinogradLines(config)
        connect(m, flipped(self.pixels), lines.pixels)
        load = record(TileLoad)
        active = Signal()
        making_columns = Signal()
        m.d.comb += [self.idle.eq(~active), self.index.eq(load.index), lines.tile_cols.eq(load.tile_cols)]
        with m.If(self.start):
            m.d.sync += [load.eq(self.load), active.eq(1), making_columns.eq(1)]

        # Pairs of columns go round in the memory of vertical sums. So many 1 as places are full or being filled, and as
        # are full: whether there is one more place, or the two pairs of a tile, a bit says.
        taken, complete = Signal(self.PAIRS), Signal(self.PAIRS)
        has_place, has_columns = ~taken[-1], complete[1]
        column_memory: Memory = Memory(
            shape=COLUMN_BITS * config.ic_lanes, depth=self.COLUMN_CYCLES * self.PAIRS, init=[])
        m.submodules.columns = column_memory
        flags = data.StructLayout({"swapped": 1, "block_end": 1, "end": 1})
        flags_of = [record(flags, name=f"flags{pair}") for pair in range(self.PAIRS)]

        # -- vertical sums: for pair of columns, column, i ------------------------------------------------------------
        number, last_number = Signal(range(self.COLUMN_CYCLES)), Signal()
        pair = Signal(range(64))
        last_pair = Signal()        # of a row
        place = Signal(range(self.PAIRS))
        i = number[:2]
        make, made, row_made = Signal(), Signal(), Signal()
        invert = Signal()
        m.d.comb += [
            make.eq(making_columns & lines.valid & has_place),
            made.eq(make & last_number),
            row_made.eq(made & last_pair),
            lines.column.eq(Cat(number[2], pair)),
            lines.upper_row.eq(i != 0),
            lines.lower_row.eq(i == 3),
            lines.release.eq(row_made),
            # The sums are upper - lower, their sum, lower - upper, upper - lower.
            invert.eq((i != 1) & ((i == 2) ^ lines.swapped)),
        ]
        operation = record(Operation)
        m.d.comb += [operation.subtract.eq(i != 1), operation.carry.eq((i != 1) & ~invert)]
        with m.If(make):
            m.d.sync += [number.eq(number + 1), last_number.eq(number == self.COLUMN_CYCLES - 2)]
            with m.Switch(place):
                for index, signal in enumerate(flags_of):
                    with m.Case(index):
                        m.d.sync += [signal.swapped.eq(lines.swapped), signal.block_end.eq(lines.block_end),
                                     signal.end.eq(lines.end)]
        with m.If(made):
            m.d.sync += [pair.eq(Mux(last_pair, 0, pair + 1)), place.eq(place + 1),
                         last_pair.eq(~last_pair & (pair + 1 == load.tile_cols))]
        with m.If(row_made & lines.end):
            m.d.sync += making_columns.eq(0)

        def delayed(signal, name, enable=1):
            register = Signal.like(signal, name=name)
            with m.If(enable):
                m.d.sync += register.eq(signal)
            return register

        # Cycle 1: the pixels and what to do with them. Cycle 2: the sum, and where it goes.
        vertical = delayed(operation, "vertical")
        write = column_memory.write_port()
        target = delayed(delayed(Cat(number, place), "target1"), "target2")
        m.d.comb += [
            write.en.eq(delayed(delayed(make, "make1"), "make2")),
            write.addr.eq(target),
        ]
        ready = delayed(delayed(made, "made1"), "made2")

        # -- transformed values: for tile, i, j -----------------------------------------------------------------------
        position, last_position = Signal(range(self.TILE_CYCLES)), Signal()
        tiles_left = Signal(len(load.tile_cols) + 1)    # of the row, after this one, less one; see `count_down`
        first = Signal(range(self.PAIRS))
        block_base = Signal(ENTRY_BITS)
        tile_base = Signal(ENTRY_BITS)
        address = Signal(ENTRY_BITS)
        bank = Signal(BankShape(config))
        here = record(flags)
        with m.Switch(first):
            for index, signal in enumerate(flags_of):
                with m.Case(index):
                    m.d.comb += here.eq(signal)
        row, j = position[2:], position[:2]
        step, go, tile_end, row_end = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            step.eq(~self.entries.valid | self.entries.ready),
            go.eq(step & has_columns),
            tile_end.eq(go & last_position),
            row_end.eq(tiles_left[-1]),
        ]
        for places, more in ((taken, made), (complete, ready)):
            kept = Mux(tile_end, Mux(row_end, places >> 2, places >> 1), places)
            m.d.sync += places.eq(Mux(more, Cat(Const(1, 1), kept), kept))
        with m.If(tile_end):
            m.d.sync += first.eq(first + Mux(row_end, 2, 1))

        # What a tile's end makes of the numbers: known a cycle after the tile began, long before that end.
        next_tile, next_block = Signal(ENTRY_BITS), Signal(ENTRY_BITS)
        ends_block, ends_box = Signal(), Signal()
        m.d.sync += [
            next_tile.eq(tile_base + (bank.all() if config.banks > 1 else 1)),
            next_block.eq(block_base + load.buf_block_pitch),
            ends_block.eq(row_end & here.block_end),
            ends_box.eq(row_end & here.end),
        ]
        with m.If(go):
            m.d.sync += [position.eq(position + 1), last_position.eq(position == self.TILE_CYCLES - 2)]
        # What comes next does not ask whether this cycle goes, which is known late.
        start, base = self.start, self.load.buf_base
        begin = Mux(start, base, Mux(ends_block, next_block, next_tile))
        with m.If(start | go):
            m.d.sync += address.eq(Mux(start | last_position, begin, address + load.position_pitch))
        with m.If(start | tile_end):
            m.d.sync += [tile_base.eq(begin), tiles_left.eq(Mux(
                start, self.load.tile_cols - 2, count_down(row_end, tiles_left, load.tile_cols, first=2)))]
            if config.banks > 1:
                m.d.sync += bank.eq(Mux(start | ends_block, 0, bank + 1))
        with m.If(start | (tile_end & ends_block)):
            m.d.sync += block_base.eq(Mux(start, base, next_block))
        m.d.sync += self.overrun.eq((go & (address >= config.input_depth)) | lines.malformed)

        # Cycle 0: two columns of each lane from the memory. The columns of a tile are those of two pairs.
        inverted = (row != 1) & ((row == 2) ^ here.swapped)
        now = record(data.StructLayout({
            "valid": 1, "operation": Operation, "invert": 1, **({"shift": 2} if narrow else {}),
            "bank": BankShape(config), "address": buffer_address_bits(config), "end": 1}))
        m.d.comb += [
            now.valid.eq(go),
            now.operation.subtract.eq(j != 1),
            now.operation.carry.eq((j != 1) ^ inverted),
            now.invert.eq(inverted),
            now.bank.eq(bank),
            now.address.eq(address),
            now.end.eq(tile_end & ends_box),
        ]
        if narrow:
            m.d.comb += now.shift.eq(load.shifts.word_select(position, 2))
        columns = []
        for name, column in (("a", Mux(j[0], 1, j)), ("b", Mux(j[1], Cat(1, j[0]), 2))):
            read = column_memory.read_port(domain="comb")
            choice = Signal(2, name=f"column_{name}")
            m.d.comb += [choice.eq(column), read.addr.eq(Cat(row, choice[0], (first + choice[1])[:2]))]
            columns.append(delayed(read.data, f"columns_{name}", step))

        stages = [now]      # cycle 1: columns; cycle 2: their sum; cycle 3, narrow: rounded
        for cycle in range(1, self.latency(config) + 1):
            stages.append(delayed(stages[-1], f"stage{cycle}", step))
        summed, last = stages[2], stages[-1]

        lanes = [WinogradLane(narrow=narrow) for _ in range(config.ic_lanes)]
        for channel, lane in enumerate(lanes):
            m.submodules[f"lane{channel}"] = lane
            m.d.comb += [
                *[lane.pixels[side].eq(lines.read[side].word_select(channel, 8).as_signed()) for side in range(2)],
                lane.vertical.eq(vertical),
                write.data.word_select(channel, COLUMN_BITS).eq(lane.column),
                lane.hold.eq(~step),
                *[lane.columns[side].eq(column.word_select(channel, COLUMN_BITS).as_signed())
                  for side, column in enumerate(columns)],
                lane.horizontal.eq(stages[1].operation),
                lane.invert.eq(summed.invert),
            ]
            if narrow:
                m.d.comb += lane.shift.eq(summed.shift)
        entry = self.entries.payload
        m.d.comb += [
            self.entries.valid.eq(last.valid),
            entry.bank.eq(last.bank),
            entry.address.eq(last.address),
            entry.post.eq(last.end & load.post_compute),
            entry.data.eq(Cat(lane.value for lane in lanes)),
        ]
        with m.If(self.entries.valid & self.entries.ready & last.end):
            m.d.sync += active.eq(0)
        return m
