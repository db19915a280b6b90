"""Words of Winograd tiles: nine make a pixel."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.utils import exact_log2

from ..arch.instruction_layout import is_kind
from ..arch.isa import WordForm
from ..lib.bits import select
from ..lib.component import record
from .pixel_order import PixelOrder
from .pixel_words import PixelWords
from .winograd_sums import WinogradSums

__all__ = ["TileWords"]


class TileWords(PixelWords):
    """Of TILES a pixel's sum has nine words, read one after the other; of other forms it has one.

    Of the words of a sum, the ``first``, those of another sign than the one before (``negate``), and the ``last`` are
    marked. All are read without a gap, and the pixel sets out with the last.
    """

    #: A position's offset, its word.
    LATENCY = 2
    POSITION = {"first": 1, "negate": 1, "last": 1}
    ISSUE = {"first": 1, "negate": 1}

    def positions(self, m: Module, pixels: Any, output: Any, found: Mapping[str, Value], *, active: Signal,
                  step: Signal, word: Signal, pixel: Value, order: PixelOrder) -> None:
        """A position's offset is made in a cycle, added to the tile's word in the next."""
        config, geometry = self.config, pixels.geometry
        tiles = is_kind(geometry.words, WordForm.TILES, config)
        m.submodules.sums = sums = WinogradSums()
        last_col, block_end, leaves = found["row_end"], found["block_end"], found["leaves"]
        found = {**found, "first": sums.first, "negate": sums.negate, "last": sums.last}
        flags = data.StructLayout({name: len(value) for name, value in found.items()})
        shifted, placed = Signal(), Signal()    # there is a position with its offset; one with its word
        shifted_flags, placed_flags = record(flags, reset_less=True), record(flags, reset_less=True)
        words, position = geometry.position_words, sums.position
        offset = Signal(len(words) + len(position), reset_less=True)
        tile_word = Signal.like(word, name="tile_word", reset_less=True)
        far, address = Signal(len(offset) + 1), Signal.like(output.p.address, name="address", reset_less=True)

        # A position of 16 is four rows of four, each ``words`` after the one before.
        words3 = Signal(len(words) + 2, reset_less=True)
        m.d.sync += words3.eq(words + (words << 1))

        def times(number: Value) -> Value:
            return select(number, [Const(0, len(words3)), words, words << 1, words3])

        m.d.comb += [
            step.eq(active & output.ready & sums.last),
            sums.enable.eq(tiles),
            sums.restart.eq(pixels.restart),
            sums.step.eq(active & output.ready),
            sums.next_row.eq(order.next_row(sums.row, last_col, block_end)),
            sums.next_col.eq(Mux(leaves, ~sums.col & ~last_col, sums.col)),
            far.eq(tile_word + offset),
            output.valid.eq(placed & ~pixels.beyond),
            output.p.address.eq(address),
            *[output.p[name].eq(placed_flags[name]) for name in found],
        ]
        # All move on together, whenever the buffer takes what comes.
        with m.If(output.ready):
            m.d.sync += [
                shifted.eq(active),
                shifted_flags.eq(Cat(found[name] for name, _ in flags)),
                tile_word.eq(order.word),
                offset.eq(times(position[:2]) + (times(position[2:]) << 2)),
                placed.eq(shifted),
                placed_flags.eq(shifted_flags),
                address.eq(far),
                pixels.beyond.eq(
                    pixels.beyond | (shifted & far[exact_log2(config.acc_depth):].any() & ~pixels.store.pooled)),
            ]
            with m.If(~tiles):
                m.d.sync += offset.eq(0)

        # Tiles are numbered on from row to row.
        tile = Cat(pixel[:(config.pixel_lanes - 1).bit_length()], word)
        row_start, following = Signal(len(tile), name="tile_row_start"), Signal(len(tile))
        m.d.comb += following.eq(tile + 1)
        with m.If(step & tiles):
            with m.If(block_end):
                m.d.sync += [tile.eq(0), row_start.eq(0)]
            with m.Elif(last_col & ~sums.row):
                m.d.sync += tile.eq(row_start)
            with m.Elif(last_col):
                m.d.sync += [tile.eq(following), row_start.eq(following)]
            with m.Else():
                m.d.sync += tile.eq(Mux(sums.col & leaves, following, tile))

    def turn(self, tiles: Value, phase: Value, comes: Value) -> Value:
        """Nine words later, with the last one, it is the pixel's turn."""
        return Mux(tiles, phase == 1, comes)

    def ends(self, m: Module, issue: Any, position: Any) -> tuple[Value, Value]:
        """What a pixel needs stays there, or has been taken, so its words follow the first without a gap."""
        m.d.comb += [issue.first.eq(position.first), issue.negate.eq(position.negate)]
        return position.first, position.last

    def begin_sources(self, m: Module, issue: Any, from_bank: Signal) -> None:
        """The word of the cycle before, in step with it. A sum is masked unless it is complete and asked for."""
        starts, negate, complete = Signal(), Signal(), Signal()
        m.d.sync += [starts.eq(issue.first), negate.eq(issue.negate), complete.eq(from_bank)]
        self._starts, self._negate, self._complete = starts, negate, complete

    def source(self, m: Module, lane: int, chosen: Value) -> Value:
        acc_width, starts = self.config.acc_width, self._starts
        bank_source = Signal(signed(acc_width), name=f"bank{lane}", reset_less=True)
        word = Signal(signed(acc_width), name=f"word{lane}", reset_less=True)
        # Without registers in hard blocks what is chosen of has been in one here.
        domain = m.d.sync if self.config.hard_block_registers else m.d.comb
        total = Signal(signed(acc_width), name=f"sum{lane}", reset_less=True)
        before = Mux(starts, 0, Mux(self._negate, ~total, total))
        # word + before + carry; as a subtraction for the reason given in `RequantizerLane`.
        domain += word.eq(chosen)
        m.d.sync += total.eq((Cat(0, word) - Cat(starts | ~self._negate, ~before))[1:])
        m.d.comb += bank_source.eq(Mux(self._complete, total, 0))
        return bank_source
