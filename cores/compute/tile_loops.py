"""Tile loops: the nested loops of COMPUTE and POOL, a cycle at a time."""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..arch.instruction_layout import field_shape, instruction_layout
from ..arch.isa import Opcode
from ..buffers.input_buffer import ENTRY_BITS, BankShape
from ..config import NpuConfig

__all__ = ["TileLoops"]


class TileLoops(wiring.Component):
    """Counters and addresses of the instruction taken over with ``start``; ``go`` moves on by one cycle's work.

    COMPUTE: for block, ky, kx, group (a step): for row, word. POOL: for block, row, column: for ky, kx (a window).
    ``address`` is the sum of a tap's part and a pixel's part; the two loop nests differ in which part runs inside.
    Every bank's tap part is kept: with Q banks, horizontal stride s and tap kx = a * s + r, pixel 0 is in bank
    ``turn`` = a % Q, and bank b is at ``((a - b + Q - 1) // Q) * s + r``.

    ``at_start``: the next ``go`` begins a step or window; ``last``: it is the last. ``acc_address`` with ``lower`` and
    ``upper`` (which groups of output lanes have a word there), ``upper_address`` for the upper group.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        compute = instruction_layout(Opcode.COMPUTE)
        # A bit more than any word's address: one beyond the bank is seen.
        base_bits = compute.members["acc_base"].width if config.winograd else 0
        acc_address = unsigned(1 + max((config.acc_depth - 1).bit_length(), base_bits))
        super().__init__({
            "start": In(1),            # begin the instruction below
            "go": In(1),               # issue this cycle
            "next_geometry": In(instruction_layout(Opcode.COMPUTE_SET)),  # of the instruction to begin
            "next_word": In(compute),  # the instruction to begin
            "next_pool": In(1),        # it is a POOL
            "geometry": Out(instruction_layout(Opcode.COMPUTE_SET)),  # of the running instruction
            "word": Out(compute),      # the running instruction
            "pool": Out(1),            # it is a POOL
            "window": Out(1),           # a depthwise COMPUTE
            "at_start": Out(1),    # the next ``go`` begins a step or window
            "last": Out(1),        # the next ``go`` is the instruction's last
            "first_step": Out(1),  # this step is the instruction's first
            "last_step": Out(1),   # this step is its last
            "last_tap": Out(1),    # this tap is the window's last
            "group": Out(field_shape(Opcode.COMPUTE, "groups")), # step of the block's tap
            "next_group": Out(field_shape(Opcode.COMPUTE, "groups")), # group of the first step that has not begun
            "address": Out(data.ArrayLayout(ENTRY_BITS, config.banks)),  # entry of each bank
            "turn": Out(BankShape(config)),   # bank of pixel 0
            "lane": Out(BankShape(config)),   # pixel of the read that counts
            "acc_address": Out(acc_address),  # word that the sums belong to
            "lower": Out(1),                  # the lower groups of output lanes have that word
            "upper": Out(1),                  # the upper group has one
            "upper_address": Out(range(config.acc_depth)),  # which one
        })

    def elaborate(self, platform):
        m = Module()
        config, g, word = self.config, self.geometry, self.word
        px, banks = config.pixel_lanes, config.banks
        with m.If(self.start):
            m.d.sync += [g.eq(self.next_geometry), word.eq(self.next_word), self.pool.eq(self.next_pool)]
        if config.depthwise:
            m.d.comb += self.window.eq(g.window & ~self.pool)

        # -- taps ---------------------------------------------------------------------------------------------------
        group, kx, ky = self.group, Signal.like(g.kernel_w), Signal.like(g.kernel_h)
        block, phase = Signal.like(word.blocks), Signal.like(g.stride)
        block_base, ky_base = Signal(ENTRY_BITS), Signal(ENTRY_BITS)
        taps = [Signal(ENTRY_BITS, name=f"tap{bank}") for bank in range(banks)]
        last_group, last_kx, last_block, last_tap = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            last_group.eq(self.pool | (group + 1 == word.groups)),
            last_kx.eq(kx + 1 == g.kernel_w),
            last_block.eq(block + 1 == word.blocks),
            last_tap.eq(last_kx & (ky + 1 == g.kernel_h) & last_group),
            self.last_tap.eq(last_tap),
            self.last_step.eq(last_tap & last_block),
            self.first_step.eq((group == 0) & (kx == 0) & (ky == 0) & (block == 0)),
            self.next_group.eq(Mux(self.at_start, group, Mux(last_group, 0, group + 1))),
        ]

        def restart_taps(base):
            return [*[s.eq(0) for s in (group, kx, ky, phase, self.turn)], *[s.eq(base) for s in (ky_base, *taps)]]

        def next_tap():
            """Next group; after the last, next kx; after the last, next ky. The caller restarts after the last ky."""
            with m.If(~last_group):
                m.d.sync += group.eq(group + 1)
            with m.Elif(last_kx):
                next_ky = ky_base + g.buf_row_pitch
                m.d.sync += restart_taps(next_ky)
                m.d.sync += ky.eq(ky + 1)
            with m.Else():
                m.d.sync += [group.eq(0), kx.eq(kx + 1)]
                if banks == 1:
                    m.d.sync += taps[0].eq(taps[0] + 1)
                    return
                with m.If(phase + 1 == g.stride):
                    # a grows: one bank goes on, the others back to the start of their group of ``stride`` entries.
                    back = g.stride - 1
                    m.d.sync += [phase.eq(0), self.turn.eq(self.turn + 1)]
                    m.d.sync += [t.eq(Mux(self.turn == bank, t + 1, t - back)) for bank, t in enumerate(taps)]
                with m.Else():
                    m.d.sync += phase.eq(phase + 1)
                    m.d.sync += [t.eq(t + 1) for t in taps]
                if config.depthwise:
                    with m.If(self.window):     # the next nnz_lanes taps
                        m.d.sync += [phase.eq(0), self.turn.eq(0)]
                        m.d.sync += [t.eq(t + config.nnz_lanes // banks) for t in taps]

        # -- pixels -------------------------------------------------------------------------------------------------
        rows_left, cols_left = Signal.like(g.rows), Signal.like(g.cols)
        row_offset, pixel_offset = Signal(ENTRY_BITS), Signal(ENTRY_BITS)
        taken = Signal(range(banks + 1))        # columns that a cycle's work takes; a window counts reads
        m.d.comb += taken.eq(Mux(self.pool, 1, px))
        if config.depthwise:
            with m.If(self.window):
                m.d.comb += taken.eq(1)
            with m.Elif(g.spread & ~self.pool):
                m.d.comb += taken.eq(banks)
        last_col, last_pixel = Signal(), Signal()
        m.d.comb += [last_col.eq(cols_left <= taken), last_pixel.eq(last_col & (rows_left == 1))]

        def columns(geometry, pool):
            return Mux(geometry.window & ~pool, geometry.reads, geometry.cols) if config.depthwise else geometry.cols

        def restart_pixels(geometry, pool, first_ky):
            """``first_ky``: the step to come is one of the first ky's, which has a row more with ``shift``."""
            more = geometry.shift & ~pool & first_ky if config.depthwise else 0
            return [cols_left.eq(columns(geometry, pool)), rows_left.eq(geometry.rows + more), row_offset.eq(0),
                    pixel_offset.eq(0), self.lane.eq(0)]

        def next_pixel():
            """On by the pixels taken; after the last, next row. The caller restarts after the last row."""
            with m.If(last_col):
                next_row = row_offset + g.buf_row_step
                m.d.sync += [cols_left.eq(columns(g, self.pool)), rows_left.eq(rows_left - 1), row_offset.eq(next_row),
                             pixel_offset.eq(next_row), self.lane.eq(0)]
            with m.Else():
                m.d.sync += cols_left.eq(cols_left - taken)
                # A read's pixels are used up before the next entry's.
                with m.If(self.window | (self.lane + taken >= banks)):
                    m.d.sync += pixel_offset.eq(pixel_offset + g.stride)
                if banks > 1:
                    with m.If(~self.window):
                        m.d.sync += self.lane.eq(self.lane + taken)

        m.d.comb += [self.address[bank].eq(tap + pixel_offset) for bank, tap in enumerate(taps)]

        # -- words of the accumulators ------------------------------------------------------------------------------
        emits = Signal()
        m.d.comb += [emits.eq(1), self.lower.eq(emits), self.upper.eq(emits), self.upper_address.eq(self.acc_address)]
        if config.depthwise:
            # A window may read on behind its row's last word, for that word's taps.
            words, words_left, first_row, above = Signal.like(g.cols), Signal.like(g.cols), Signal(), Signal()
            m.d.comb += [
                emits.eq(~self.window | (words_left != 0)),
                above.eq(self.window & g.shift & (ky == 0)),    # the upper group is a row behind
            ]
            with m.If(above):
                m.d.comb += [self.lower.eq(emits & (rows_left != 1)), self.upper.eq(emits & ~first_row),
                             self.upper_address.eq(self.acc_address - words)]
            with m.If(self.start):
                wide, narrow = (banks - 1).bit_length(), (px - 1).bit_length()
                n = self.next_geometry
                row_words = Mux(n.spread, (n.cols + (banks - 1)) >> wide, (n.cols + (px - 1)) >> narrow)
                m.d.sync += [words.eq(row_words), words_left.eq(row_words), first_row.eq(1)]
            with m.Elif(self.go & last_col):
                m.d.sync += [words_left.eq(words), first_row.eq(last_pixel)]
            with m.Elif(self.go & emits):
                m.d.sync += words_left.eq(words_left - 1)

        def restart_words(instruction):
            return self.acc_address.eq(instruction.acc_base if config.winograd else 0)

        # -- the nests ----------------------------------------------------------------------------------------------
        inner_done, outer_done = Mux(self.pool, last_tap, last_pixel), Mux(self.pool, last_pixel, last_tap)
        m.d.comb += self.last.eq(inner_done & outer_done & last_block)
        with m.If(self.go):
            m.d.sync += self.at_start.eq(inner_done)
            first_ky = (ky == 0) & ~(last_group & last_kx)
            with m.If(self.pool):
                next_tap()
                with m.If(last_tap):
                    m.d.sync += restart_taps(block_base)
                    next_pixel()
            with m.Else():
                with m.If(emits):
                    m.d.sync += self.acc_address.eq(self.acc_address + 1)
                next_pixel()
                with m.If(last_pixel):
                    m.d.sync += [restart_words(word), *restart_pixels(g, self.pool, first_ky)]
                    next_tap()
            with m.If(inner_done & outer_done):
                next_block = block_base + g.buf_block_pitch
                m.d.sync += [block.eq(block + 1), block_base.eq(next_block)]
                m.d.sync += [*restart_taps(next_block), *restart_pixels(g, self.pool, first_ky)]
        with m.If(self.start):
            n = self.next_geometry
            m.d.sync += [block.eq(0), block_base.eq(self.next_word.buf_base), restart_words(self.next_word)]
            m.d.sync += self.at_start.eq(1)
            m.d.sync += [*restart_taps(self.next_word.buf_base), *restart_pixels(n, self.next_pool, 1)]
        return m
