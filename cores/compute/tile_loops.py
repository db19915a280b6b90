"""Tile loops: the nested loops of COMPUTE and POOL, a cycle at a time."""

from typing import Any

from amaranth.hdl import Module, Mux, Shape, Signal, Value, signed, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ..arch.instruction_layout import bits_of, field_or_zero, field_shape, instruction_layout, kind_flags
from ..arch.isa import Opcode, StepKind
from ..buffers.input_buffer import ENTRY_BITS, BankShape
from ..config import NpuConfig
from ..lib.component import Component, record
from ..timing.compute import TileLoopsTiming
from .loop_words import Count, LoopRegisters
from .word_parts import loop_words_of, word_kinds

__all__ = ["TileLoops"]


class _Passes:
    """The passes of a loop that are left, the present one included; ``last`` says that it is the last, and
    ``next_is_last`` that it is the last but one.

    Both are registers that arrive with the pass, so that nothing is compared when the pass ends.
    """

    def __init__(self, count: Value, name: str):
        self.left = Signal.like(count, name=f"{name}_left")
        self.last, self.next_is_last = Signal(name=f"last_{name}"), Signal(name=f"next_is_last_{name}")

    def start(self, count: Value, single: Value, two: Value) -> list:
        """The first of ``count`` passes; ``single``: there is but one; ``two``: there are as many."""
        return [self.left.eq(count), self.last.eq(single), self.next_is_last.eq(two)]

    def next(self) -> list:
        return [self.left.eq(self.left - 1), self.last.eq(self.next_is_last), self.next_is_last.eq(self.left == 3)]


class TileLoops(TileLoopsTiming, Component):
    """Counters and addresses of the instruction taken over with ``start``; ``go`` moves on by one cycle's work.

    COMPUTE: for block, ky, kx, group (a step): for row, word. POOL: for block, row, column: for ky, kx (a window).
    ``address`` is the sum of a tap's part and a pixel's part; the two loop nests differ in which part runs inside.
    Every bank's tap part is kept: with Q banks, horizontal stride s and tap kx = a * s + r, pixel 0 is in bank
    ``turn`` = a % Q, and bank b is at ``((a - b + Q - 1) // Q) * s + r``.

    ``at_start``: the next ``go`` or ``begin`` begins a step or window; ``last``: the ``go`` is the last.
    ``acc_address`` with ``lower`` and ``upper`` (which groups of output lanes have a word there), ``upper_address`` for
    the upper group.

    The instruction to begin must stand at its ports `PREPARE` cycles before ``start``, which comes with the last ``go``
    or later. ``go`` decides only whether registers move: where they move to follows from registers alone.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        self._words = loop_words_of(config)
        self._words_stay = any(kind.STAYS for kind in word_kinds(config))
        compute = instruction_layout(Opcode.COMPUTE)
        # A bit more than any word's address: one beyond the bank is seen.
        base_bits = bits_of(Opcode.COMPUTE, "acc_base", config)
        acc_address = unsigned(1 + max((config.acc_depth - 1).bit_length(), base_bits))
        super().__init__({
            "start": In(1),            # begin the instruction below
            "go": In(1),               # issue this cycle
            # Where words stay: one begins that a later ``go`` ends; no other does.
            **({"begin": In(1)} if self._words_stay else {}),
            "next_geometry": In(instruction_layout(Opcode.COMPUTE_SET)),  # of the instruction to begin
            "next_word": In(compute),  # the instruction to begin
            "next_pool": In(1),        # it is a POOL
            "next_kinds": In(kind_flags(StepKind, config)),  # what its steps are
            "running": Out(1),         # there is an instruction, and a ``go`` to come
            "geometry": Out(instruction_layout(Opcode.COMPUTE_SET)),  # of the running instruction
            "word": Out(compute),      # the running instruction
            "pool": Out(1),            # it is a POOL
            "kinds": Out(kind_flags(StepKind, config)),  # what its steps are
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

    def _prepare(self, m: Module) -> Any:
        """Registers with what the loops make of the instruction to begin."""
        g, word, pool = self.next_geometry, self.next_word, self.next_pool
        columns = Shape.cast(g.cols.shape())
        prepared = record(data.StructLayout({
            "row_cycles": columns,      # a row's cycles
            # A single one: cycle of a row, row, step of a tap, kx, ky, block, column of a stride; step of a ky.
            "one_col": 1, "one_row": 1, "one_group": 1, "one_kx": 1, "one_ky": 1, "one_block": 1, "one_phase": 1,
            "one_in_ky": 1,
            # Two of them; a single tap of a window or block.
            "two_cols": 1, "two_rows": 1, "two_groups": 1, "two_kxs": 1, "two_kys": 1, "two_blocks": 1, "two_phases": 1,
            "one_tap": 1,
            "back": signed(1 + len(g.stride)),  # from the last column of a stride to its first
            # Where the second block and the second ky begin.
            "next_block": ENTRY_BITS, "next_line": ENTRY_BITS,
            **self._words.members(columns),
        }), name="prepared")

        def single(count):
            return count == 1

        def row_of(pixels):
            """Of words of so many pixels."""
            words = (g.cols + (pixels - 1)) >> (pixels - 1).bit_length()
            return Count(words, g.cols <= pixels, (g.cols > pixels) & (g.cols <= 2 * pixels))

        # A cycle takes a pixel of a POOL, a read of a window, or a word of pixels.
        row_cycles, one_col, two_cols = self._words.row(m, self, prepared, row_of)
        m.d.sync += [
            prepared.row_cycles.eq(Mux(pool, g.cols, row_cycles)),
            prepared.one_col.eq(Mux(pool, single(g.cols), one_col)),
            prepared.one_row.eq(single(g.rows)),
            prepared.one_group.eq(pool | single(word.groups)),
            prepared.one_kx.eq(single(g.kernel_w)),
            prepared.one_ky.eq(single(g.kernel_h)),
            prepared.one_block.eq(single(word.blocks)),
            prepared.one_phase.eq(single(g.stride)),
            prepared.one_in_ky.eq((pool | single(word.groups)) & single(g.kernel_w)),
            prepared.one_tap.eq((pool | single(word.groups)) & single(g.kernel_w) & single(g.kernel_h)),
            prepared.two_cols.eq(Mux(pool, g.cols == 2, two_cols)),
            prepared.two_rows.eq(g.rows == 2),
            prepared.two_groups.eq(~pool & (word.groups == 2)),
            prepared.two_kxs.eq(g.kernel_w == 2),
            prepared.two_kys.eq(g.kernel_h == 2),
            prepared.two_blocks.eq(word.blocks == 2),
            prepared.two_phases.eq(g.stride == 2),
            prepared.back.eq(1 - g.stride),
            prepared.next_block.eq(word.buf_base + g.buf_block_pitch),
            prepared.next_line.eq(word.buf_base + g.buf_row_pitch),
        ]
        return prepared

    def elaborate(self, platform):
        m = Module()
        config, g, word, pool = self.config, self.geometry, self.word, self.pool
        px, banks = config.pixel_lanes, config.banks
        prepared = self._prepare(m)
        own = record(prepared.shape(), name="own")     # the running instruction's
        with m.If(self.start):
            m.d.sync += [g.eq(self.next_geometry), word.eq(self.next_word), pool.eq(self.next_pool), own.eq(prepared),
                         self.kinds.eq(self.next_kinds)]
        self._words.begin(m, self, own)

        cols, rows = _Passes(own.row_cycles, "col"), _Passes(g.rows, "row")
        groups, kxs = _Passes(word.groups, "group"), _Passes(g.kernel_w, "kx")
        kys, blocks = _Passes(g.kernel_h, "ky"), _Passes(word.blocks, "block")
        # The conjunction of their parts' flags, as registers of their own.
        last_pixel = Signal()
        last_tap = self.last_tap
        m.d.comb += [
            self.last_step.eq(last_tap & blocks.last),
            self.last.eq(last_pixel & last_tap & blocks.last),
        ]

        # -- taps ---------------------------------------------------------------------------------------------------
        group, phases = self.group, _Passes(g.stride, "phase")
        first_ky = Signal()
        # Where the block begins, and the next block and the next ky: known before they do.
        block_base, next_block, next_line = (
            Signal(ENTRY_BITS, name=name) for name in ("block_base", "next_block", "next_line"))
        taps: list[Value] = [Signal(ENTRY_BITS, name=f"tap{bank}") for bank in range(banks)]
        emits = Signal(init=1)      # a cycle of a row has a word
        at = LoopRegisters(own, cols, groups, kxs, phases, rows, first_ky, last_pixel, taps, emits)

        def start_line(base, of):
            """The first kx of a ky, whose entries begin at ``base``; ``of``: what was prepared of the instruction."""
            word, g = (self.next_word, self.next_geometry) if of is prepared else (self.word, self.geometry)
            following = prepared.next_line if of is prepared else base + g.buf_row_pitch
            return [group.eq(0), self.turn.eq(0), next_line.eq(following), *[tap.eq(base) for tap in taps],
                    *groups.start(word.groups, of.one_group, of.two_groups),
                    *kxs.start(g.kernel_w, of.one_kx, of.two_kxs), *phases.start(g.stride, of.one_phase, of.two_phases)]

        def start_taps(base, of):
            kernel_h = (self.next_geometry if of is prepared else self.geometry).kernel_h
            return [*start_line(base, of), *kys.start(kernel_h, of.one_ky, of.two_kys), first_ky.eq(1),
                    last_tap.eq(of.one_tap)]

        def next_kx():
            if banks == 1:
                m.d.sync += taps[0].eq(taps[0] + 1)
                return
            with m.If(phases.last):
                # a grows: one bank goes on, the others back to the start of their group of ``stride`` entries.
                m.d.sync += [*phases.start(g.stride, own.one_phase, own.two_phases), self.turn.eq(self.turn + 1)]
                m.d.sync += [t.eq(t + Mux(self.turn == bank, 1, own.back)) for bank, t in enumerate(taps)]
            with m.Else():
                m.d.sync += [*phases.next(), *[t.eq(t + 1) for t in taps]]
            self._words.next_taps(m, self, at)

        def next_tap():
            """Next group; after the last, next kx; after the last, next ky; after the last, next window or block."""
            line = Mux(last_tap, Mux(last_pixel, next_block, block_base), next_line)    # where the next ky begins
            with m.If(last_tap):
                m.d.sync += start_taps(line, own)
                with m.If(last_pixel):
                    m.d.sync += [*blocks.next(), block_base.eq(next_block),
                                 next_block.eq(next_block + g.buf_block_pitch)]
            with m.Elif(groups.last & kxs.last):
                m.d.sync += [*start_line(line, own), *kys.next(), first_ky.eq(0),
                             last_tap.eq(own.one_in_ky & kys.next_is_last)]
            with m.Elif(groups.last):
                m.d.sync += [group.eq(0), *groups.start(word.groups, own.one_group, own.two_groups), *kxs.next(),
                             last_tap.eq(own.one_group & kxs.next_is_last & kys.last)]
                next_kx()
            with m.Else():
                m.d.sync += [group.eq(group + 1), *groups.next(),
                             last_tap.eq(groups.next_is_last & kxs.last & kys.last)]

        # The next step is known in the cycle after a step's first issue.
        next_group = Signal.like(group, name="group_behind")
        m.d.sync += next_group.eq(Mux(groups.last, 0, group + 1))
        m.d.comb += self.next_group.eq(Mux(self.at_start, group, next_group))

        # -- pixels -------------------------------------------------------------------------------------------------
        next_row = Signal(ENTRY_BITS)           # offset of the row after this one
        pixel_offset = Signal(ENTRY_BITS)
        taken = Signal(range(banks + 1))        # pixels of a read that a cycle takes
        m.d.comb += taken.eq(Mux(pool, 1, px))
        self._words.pixels_taken(m, self, taken)

        def start_pixels(of):
            one = of is prepared
            geometry = self.next_geometry if one else g
            of_step = self._words.rows(of, Count(geometry.rows, of.one_row, of.two_rows), None if one else at)
            return [*cols.start(of.row_cycles, of.one_col, of.two_cols), *rows.start(*of_step),
                    next_row.eq(geometry.buf_row_step), pixel_offset.eq(0), self.lane.eq(0),
                    last_pixel.eq(of.one_col & of_step.single)]

        def next_pixel():
            """On by the pixels taken; after the last, next row; after the last, the first again."""
            with m.If(last_pixel):
                m.d.sync += start_pixels(own)
            with m.Elif(cols.last):
                m.d.sync += [*cols.start(own.row_cycles, own.one_col, own.two_cols), *rows.next(),
                             next_row.eq(next_row + g.buf_row_step), pixel_offset.eq(next_row), self.lane.eq(0),
                             last_pixel.eq(own.one_col & rows.next_is_last)]
            with m.Else():
                m.d.sync += [*cols.next(), last_pixel.eq(cols.next_is_last & rows.last)]
                # A read's pixels are used up before the next entry's.
                with m.If(self.window | (self.lane + taken >= banks)):
                    m.d.sync += pixel_offset.eq(pixel_offset + g.stride)
                if banks > 1:
                    with m.If(~self.window):
                        m.d.sync += self.lane.eq(self.lane + taken)

        m.d.comb += [self.address[bank].eq(tap + pixel_offset) for bank, tap in enumerate(taps)]

        # -- words of the accumulators ------------------------------------------------------------------------------
        def start_words(instruction):
            return self.acc_address.eq(field_or_zero(instruction, Opcode.COMPUTE, "acc_base", config))

        m.d.comb += [self.lower.eq(emits), self.upper.eq(emits), self.upper_address.eq(self.acc_address)]
        self._words.emit(m, self, at)

        def next_word():
            with m.If(last_pixel):
                m.d.sync += start_words(word)
            with m.Elif(emits):
                m.d.sync += self.acc_address.eq(self.acc_address + 1)
            self._words.next_word(m, self, at)

        if self._words_stay:
            with m.If(self.begin):
                m.d.sync += self.at_start.eq(0)

        # -- the nests ----------------------------------------------------------------------------------------------
        # What begins is loaded in any case, with the last ``go`` and while nothing runs; ``start`` says
        # whether it runs, which after a running instruction comes with a ``go``.
        with m.If(self.go | ~self.running):
            with m.If(~self.running | self.last):
                base = self.next_word.buf_base
                m.d.sync += [self.running.eq(self.start), self.at_start.eq(1), self.first_step.eq(1)]
                m.d.sync += [block_base.eq(base), next_block.eq(prepared.next_block),
                             *blocks.start(self.next_word.blocks, prepared.one_block, prepared.two_blocks)]
                m.d.sync += [*start_taps(base, prepared), *start_pixels(prepared), start_words(self.next_word)]
                self._words.start(m, prepared, at)
            with m.Else():
                m.d.sync += self.at_start.eq(Mux(pool, last_tap, last_pixel))
                with m.If(pool | last_pixel):
                    m.d.sync += self.first_step.eq(0)
                    next_tap()
                with m.If(~pool | last_tap):
                    next_pixel()
                with m.If(~pool):
                    next_word()
        return m
