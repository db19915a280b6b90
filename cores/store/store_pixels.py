"""The order in which a STORE takes its pixels."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..arch.instruction_layout import instruction_layout
from ..arch.isa import Opcode
from ..config import NpuConfig
from .requantizer import SelectShape
from .winograd_sums import OFFSET_BITS, WinogradSums

__all__ = ["StorePixels"]


class StorePixels(wiring.Component):
    """Counts through a STORE's pixels: for block, row, column, one further with each ``step``; ``restart`` begins.

    A pixel's group is its block's, or in a STORE of one block goes with the column (``spread``) or with the row
    (``alternate``). With ``winograd``, a pixel takes nine steps, a word each; four pixels share a place. With
    ``repeats`` so many columns more have the same pixel, up to the end of the row.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "restart": In(1),                         # begin the STORE
            "step": In(1),                            # go on by a pixel, or by a word of its sum
            "geometry": In(instruction_layout(Opcode.STORE_SET)),  # stands still from ``restart`` on
            "store": In(instruction_layout(Opcode.STORE)),  # stands still as well
            "address": Out(range(config.acc_depth)),  # accumulator word of the pixel
            "beyond": Out(1),                         # there is no such word
            "select": Out(SelectShape(config)),       # the pixel's place in the word, ``pixel * oc_groups + group``
            "leaves": Out(1),                         # the next column has another pixel
            "row_end": Out(1),                        # it is the last of its row
            "block_start": Out(1),                    # it is the first of its block
            "block_end": Out(1),                      # it is the last of its block
            "end": Out(1),                            # it is the STORE's last
            **({
                "first": Out(1),   # this word is the first of the pixel's sum
                "negate": Out(1),  # its sign is not that of the word before
                "last": Out(1),    # this word is the last of the sum
            } if config.winograd else {}),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        cols_left = Signal.like(self.geometry.cols, reset_less=True)
        rows_left = Signal.like(self.geometry.rows, reset_less=True)
        blocks_left = Signal.like(self.store.blocks, reset_less=True)
        row_end = self.row_end
        repeats_left = Signal.like(self.store.repeats, reset_less=True)
        word = Signal(range(2 * config.acc_depth))
        # Both counters wrap at the places they select from; with a single place they have no bits.
        group_bits = (config.oc_groups - 1).bit_length()
        place = Signal(SelectShape(config))
        group, pixel = place[:group_bits], place[group_bits:]
        # Groups of a word can hold further columns or rows of one block.
        groups_share = config.banks > config.pixel_lanes
        spread, alternate = self.geometry.spread, self.geometry.alternate
        row_start = Signal.like(word, reset_less=True)
        m.d.comb += [
            row_end.eq(cols_left == 1),
            self.block_end.eq(row_end & (rows_left == 1)),
            self.end.eq(self.block_end & (blocks_left == 1)),
            self.leaves.eq(row_end | (repeats_left == 0)),
            self.select.eq(place),
        ]
        if config.winograd:
            step = self._sums(m, word, row_end)
        else:
            m.d.comb += Cat(self.address, self.beyond).eq(word)
            step = self.step
        with m.If(self.restart):
            m.d.sync += [
                cols_left.eq(self.geometry.cols), rows_left.eq(self.geometry.rows), blocks_left.eq(self.store.blocks),
                repeats_left.eq(self.store.repeats), place.eq(0), word.eq(0), self.block_start.eq(1),
            ]
            if groups_share:
                m.d.sync += row_start.eq(0)
        with m.Elif(step):
            m.d.sync += [
                cols_left.eq(Mux(row_end, self.geometry.cols, cols_left - 1)),
                repeats_left.eq(Mux(self.leaves, self.store.repeats, repeats_left - 1)),
                self.block_start.eq(self.block_end),
            ]
            with m.If(row_end):
                m.d.sync += rows_left.eq(Mux(self.block_end, self.geometry.rows, rows_left - 1))
            group_end = self.leaves
            if config.pixel_lanes > 1:
                # An odd row leaves the last word's other pixel out.
                group_end = row_end | (self.leaves & pixel.all())
                m.d.sync += pixel.eq(Mux(row_end, 0, pixel + self.leaves))
            word_end = row_end | (group_end & (group.all() | ~spread)) if groups_share else group_end
            with m.If(self.block_end):
                m.d.sync += [word.eq(0), blocks_left.eq(blocks_left - 1)]
                if config.oc_groups > 1:
                    m.d.sync += group.eq(group + 1)
            with m.Elif(word_end):
                m.d.sync += word.eq(word + 1)
            if groups_share:
                with m.If(spread & group_end):
                    m.d.sync += group.eq(Mux(row_end, 0, group + 1))
                with m.Elif(alternate & row_end):
                    m.d.sync += group.eq(group + 1)
                    with m.If(group.all()):
                        m.d.sync += row_start.eq(word + 1)
                    with m.Else():
                        # The next row has the same words.
                        m.d.sync += word.eq(row_start)
            if config.winograd:
                with m.If(self.geometry.winograd):
                    self._next_tile(m, word, pixel, row_end)
        return m

    def _sums(self, m: Module, word: Signal, row_end: Signal) -> Signal:
        """Winograd: the words of a pixel. Returns the step to the next pixel."""
        m.submodules.sums = sums = WinogradSums()
        self._tile = sums
        far = Signal(OFFSET_BITS + 1)
        m.d.comb += [
            sums.enable.eq(self.geometry.winograd),
            sums.position_words.eq(self.geometry.position_words),
            sums.restart.eq(self.restart),
            sums.step.eq(self.step),
            sums.next_row.eq(Mux(row_end, ~sums.row & ~self.block_end, sums.row)),
            sums.next_col.eq(Mux(self.leaves, ~sums.col & ~row_end, sums.col)),
            self.first.eq(sums.first), self.negate.eq(sums.negate), self.last.eq(sums.last),
            far.eq(word + sums.offset),
            self.address.eq(far),
            self.beyond.eq(far >= self.config.acc_depth),
        ]
        step = Signal()
        m.d.comb += step.eq(self.step & sums.last)
        return step

    def _next_tile(self, m: Module, word: Signal, pixel: Value, row_end: Signal) -> None:
        """Winograd: place of the next pixel. Tiles are numbered on from row to row."""
        tile = Cat(pixel[:(self.config.pixel_lanes - 1).bit_length()], word)
        row_start, following = Signal(len(tile)), Signal(len(tile))
        m.d.comb += following.eq(tile + 1)
        with m.If(self.block_end):
            m.d.sync += [tile.eq(0), row_start.eq(0)]
        with m.Elif(row_end & ~self._tile.row):
            m.d.sync += tile.eq(row_start)
        with m.Elif(row_end):
            m.d.sync += [tile.eq(following), row_start.eq(following)]
        with m.Else():
            m.d.sync += tile.eq(Mux(self._tile.col & self.leaves, following, tile))
