"""Tile sequencer: turns COMPUTE and POOL into one input-buffer address a cycle."""

from amaranth.hdl import Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .axi import ErrorReport
from .config import NpuConfig
from .input_buffer import ENTRY_BITS, buffer_address_bits
from .instruction_layout import INDEX_BITS, QueueEntry, instruction_layout
from .isa import ErrorCode, Opcode
from .registers import ENGINE_STATES

__all__ = ["IssueLayout", "TileSequencer"]

_STATE = {name: code for code, name in enumerate(ENGINE_STATES["compute"])}


class IssueLayout(data.StructLayout):
    """What one issued cycle means, for the pipeline behind the input buffer."""

    def __init__(self, config: NpuConfig):
        super().__init__({
            "gemm": 1,             # a word for the multiplier array
            "pool": 1,             # a window tap for the pool unit
            "swap": 1,             # pixel 0 is in bank 1
            "step_start": 1,       # first word of a step: take the weights over
            "first": 1,            # accumulate from zero
            "bank": 1,
            "acc_address": range(config.acc_depth),
            "post_store": 1,       # last word of a COMPUTE that posts a token
            "lane": 1,             # POOL: pixel lane that holds the tap
            "window_start": 1,     # POOL: first tap
            "window_end": 1,       # POOL: last tap
            "maximum": 1,
        })


class TileSequencer(wiring.Component):
    """Loops of the compute queue. An issue a cycle, from one instruction to the next without a gap.

    COMPUTE: for block, ky, kx, group: for row, column pair. POOL: for block, row, column: for ky, kx.
    The address is the sum of a tap's part and a pixel's part; the two loop nests differ in which part runs inside.
    Both banks' tap parts are kept: with horizontal stride s and tap kx = a * s + r, bank 1 is at ``(a // 2) * s + r``
    and bank 0 at ``((a + 1) // 2) * s + r``, and for odd a pixel 0 is in bank 1.

    A step starts when its weights are ready and ``min_step`` cycles after the step before (the accumulators' hazard).
    The instruction behind the running one is decoded early, so that its weights can be gathered (``fill_*``).
    Latency from the counters to ``address``: 1.
    """

    def __init__(self, config: NpuConfig, *, min_step: int):
        if min_step < 1:
            raise ValueError(f"min_step must be at least 1, not {min_step!r}")
        self.config = config
        self.min_step = min_step
        address = unsigned(buffer_address_bits(config))
        super().__init__({
            "queue": In(stream.Signature(QueueEntry)),
            "load_level": In(8),
            "load_take": Out(8),
            "store_level": In(8),
            "store_take": Out(8),
            "post_load": Out(1),
            "fill_valid": Out(1),
            "fill_indexed": Out(1),
            "fill_group": Out(6),
            "weights_ready": In(1),
            "pool_ready": In(1),
            "issue": Out(IssueLayout(config)),
            "address": Out(data.ArrayLayout(address, config.pixel_lanes)),
            "state": Out(4),
            "index": Out(INDEX_BITS),
            "error": Out(ErrorReport),
            "idle": Out(1),
            "halt": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        px = config.pixel_lanes
        wide = ENTRY_BITS
        set_layout, compute_layout = instruction_layout(Opcode.COMPUTE_SET), instruction_layout(Opcode.COMPUTE)

        # -- decode one instruction ahead ------------------------------------------------------------------------
        entry = self.queue.payload
        geometry = Signal(set_layout)               # of the latest COMPUTE_SET
        following = Signal(data.StructLayout({      # decoded, waiting for its turn
            "valid": 1, "pool": 1, "index": INDEX_BITS, "word": compute_layout, "geometry": set_layout}))
        opcode = Value.cast(entry.word)[:4]
        m.d.comb += self.queue.ready.eq(~following.valid & ~self.halt)
        with m.If(self.queue.valid & self.queue.ready):
            with m.If(opcode == Opcode.COMPUTE_SET):
                m.d.sync += Value.cast(geometry).eq(entry.word)
            with m.Else():
                m.d.sync += [
                    following.valid.eq(1),
                    following.pool.eq(opcode == Opcode.POOL),
                    following.index.eq(entry.index),
                    Value.cast(following.word).eq(entry.word),
                    following.geometry.eq(geometry),
                ]
        pool_view = data.View(instruction_layout(Opcode.POOL), Value.cast(following.word))

        # -- the running instruction ---------------------------------------------------------------------------
        active, pool, index = Signal(), Signal(), Signal(INDEX_BITS)
        g = Signal(set_layout)
        indexed, first, bank, maximum = Signal(), Signal(), Signal(), Signal()
        post_load, post_store = Signal(), Signal()
        groups, blocks = Signal(6), Signal(10)

        group, kx, ky, block = Signal(6), Signal(6), Signal(6), Signal(10)
        phase, parity = Signal(3), Signal()         # kx = a * stride + phase; parity of a
        block_base, ky_base = Signal(wide), Signal(wide)
        tap = [Signal(wide, name=f"tap{b}") for b in range(px)]
        rows_left, cols_left = Signal(10), Signal(12)
        row_offset, pixel_offset, lane = Signal(wide), Signal(wide), Signal()
        acc_address = Signal(range(config.acc_depth + 1))
        at_pixel_start, at_tap_start = Signal(), Signal()
        since_step = Signal(range(self.min_step + 1))

        last_group = Mux(pool, 1, group + 1 == groups)
        last_kx, last_ky = kx + 1 == g.kernel_w, ky + 1 == g.kernel_h
        last_block = Signal()
        last_tap = Signal()
        m.d.comb += [last_block.eq(block + 1 == blocks), last_tap.eq(last_kx & last_ky & last_group)]
        last_col = Mux(pool, cols_left == 1, cols_left <= px)
        last_pixel = Signal()
        m.d.comb += last_pixel.eq(last_col & (rows_left == 1))

        # -- may this cycle issue? ------------------------------------------------------------------------------
        go = Signal()
        step_start = active & ~pool & at_pixel_start
        window_start = active & pool & at_tap_start
        step_waits_weights = step_start & ~self.weights_ready
        step_waits_hazard = step_start & (since_step < self.min_step)
        m.d.comb += go.eq(active & ~step_waits_weights & ~step_waits_hazard & ~(window_start & ~self.pool_ready))
        inner_done = Mux(pool, last_tap, last_pixel)
        outer_done = Mux(pool, last_pixel, last_tap)
        done = Signal()
        m.d.comb += done.eq(go & inner_done & outer_done & last_block)

        with m.If(since_step < self.min_step):
            m.d.sync += since_step.eq(since_step + 1)
        with m.If(go):
            with m.If(step_start):
                m.d.sync += since_step.eq(1)
            m.d.sync += [at_pixel_start.eq(0), at_tap_start.eq(0)]
            with m.If(pool):
                self._advance_tap(m, g, group, groups, kx, ky, last_kx, last_group, phase, parity, ky_base, tap, pool)
                with m.If(last_tap):
                    m.d.sync += at_tap_start.eq(1)
                    self._restart_taps(m, group, kx, ky, phase, parity, ky_base, tap, block_base)
                    self._advance_pixel(m, g, last_col, cols_left, rows_left, row_offset, pixel_offset, lane, pool)
            with m.Else():
                m.d.sync += acc_address.eq(acc_address + 1)
                self._advance_pixel(m, g, last_col, cols_left, rows_left, row_offset, pixel_offset, lane, pool)
                with m.If(last_pixel):
                    m.d.sync += [at_pixel_start.eq(1), acc_address.eq(0)]
                    self._restart_pixels(m, g, cols_left, rows_left, row_offset, pixel_offset, lane)
                    self._advance_tap(m, g, group, groups, kx, ky, last_kx, last_group, phase, parity, ky_base, tap,
                                      pool)
            with m.If(inner_done & outer_done):
                next_block = block_base + g.buf_block_pitch
                m.d.sync += [block.eq(block + 1), block_base.eq(next_block)]
                self._restart_taps(m, group, kx, ky, phase, parity, ky_base, tap, next_block)
                self._restart_pixels(m, g, cols_left, rows_left, row_offset, pixel_offset, lane)
            with m.If(done):
                m.d.sync += active.eq(0)

        # -- take the next instruction --------------------------------------------------------------------------
        # ``following`` becomes the running instruction as soon as the running one has issued its last cycle.
        word, ready_tokens = following.word, Signal()
        waits_load = word.wait_load & (self.load_level == 0)
        waits_store = word.wait_store & (self.store_level == 0)
        m.d.comb += ready_tokens.eq(~waits_load & ~waits_store)
        with m.If(following.valid & (~active | done) & ready_tokens & ~self.halt):
            geometry_next = following.geometry
            m.d.comb += [self.load_take.eq(word.wait_load), self.store_take.eq(word.wait_store)]
            m.d.sync += [
                following.valid.eq(0),
                active.eq(1),
                pool.eq(following.pool),
                index.eq(following.index),
                g.eq(geometry_next),
                post_load.eq(word.post_load),
                post_store.eq(word.post_store),
                blocks.eq(word.blocks),
                groups.eq(word.groups),
                indexed.eq(word.indexed),
                first.eq(word.first),
                bank.eq(word.bank),
                maximum.eq(pool_view.maximum),
                block.eq(0),
                block_base.eq(word.buf_base),
                acc_address.eq(0),
                at_pixel_start.eq(1),
                at_tap_start.eq(1),
            ]
            self._restart_taps(m, group, kx, ky, phase, parity, ky_base, tap, word.buf_base)
            self._restart_pixels(m, geometry_next, cols_left, rows_left, row_offset, pixel_offset, lane)

        # -- what the weight loader gathers next -----------------------------------------------------------------
        # The first step that has not started: the one at the counters, or the one behind it.
        m.d.comb += [self.fill_valid.eq(1), self.fill_indexed.eq(indexed)]
        with m.If(active & ~pool & at_pixel_start):
            m.d.comb += self.fill_group.eq(group)
        with m.Elif(active & ~pool & ~(last_block & last_tap)):
            m.d.comb += self.fill_group.eq(Mux(last_group, 0, group + 1))
        with m.Else():
            m.d.comb += [
                self.fill_valid.eq(following.valid & ~following.pool),
                self.fill_indexed.eq(word.indexed),
                self.fill_group.eq(0),
            ]

        # -- issue ----------------------------------------------------------------------------------------------
        first_step = Signal()                       # no step of this tile's first block and tap has finished yet
        m.d.comb += first_step.eq(first & (group == 0) & (kx == 0) & (ky == 0) & (block == 0))
        issue = self.issue
        m.d.sync += [
            issue.gemm.eq(go & ~pool),
            issue.pool.eq(go & pool),
            issue.swap.eq(parity),
            issue.step_start.eq(go & step_start),
            issue.first.eq(first_step),
            issue.bank.eq(bank),
            issue.acc_address.eq(acc_address),
            issue.post_store.eq(done & post_store & ~pool),
            issue.lane.eq(lane),
            issue.window_start.eq(at_tap_start),
            issue.window_end.eq(last_tap),
            issue.maximum.eq(maximum),
            self.post_load.eq(done & post_load),
        ]
        out_of_buffer = Signal()
        for b in range(px):
            address = Signal(wide, name=f"sum{b}")
            m.d.comb += address.eq(tap[b] + pixel_offset)
            m.d.sync += self.address[b].eq(address)
            with m.If(go & (address >= config.input_depth)):
                m.d.comb += out_of_buffer.eq(1)
        out_of_bank = go & ~pool & (acc_address >= config.acc_depth)
        no_geometry = active & (g.kernel_w == 0)    # no COMPUTE_SET in front of it
        m.d.comb += [
            self.error.valid.eq(out_of_buffer | out_of_bank | no_geometry),
            self.error.code.eq(Mux(no_geometry, ErrorCode.ILLEGAL, ErrorCode.BUFFER)),
            self.error.index.eq(index),
            self.index.eq(Mux(active | ~following.valid, index, following.index)),
            self.idle.eq(~active & ~following.valid & ~issue.gemm & ~issue.pool),
        ]
        with m.If(go):
            m.d.comb += self.state.eq(_STATE["busy"])
        with m.Elif(step_waits_weights):
            m.d.comb += self.state.eq(_STATE["wait_weights"])
        with m.Elif(active & pool):
            m.d.comb += self.state.eq(_STATE["wait_store"])
        with m.Elif(active):
            m.d.comb += self.state.eq(_STATE["setup"])
        with m.Elif(following.valid & waits_load):
            m.d.comb += self.state.eq(_STATE["wait_load"])
        with m.Elif(following.valid & waits_store):
            m.d.comb += self.state.eq(_STATE["wait_store"])
        with m.Elif(following.valid):
            m.d.comb += self.state.eq(_STATE["setup"])
        return m

    @staticmethod
    def _restart_taps(m, group, kx, ky, phase, parity, ky_base, tap, base) -> None:
        m.d.sync += [s.eq(0) for s in (group, kx, ky, phase, parity)]
        m.d.sync += [s.eq(base) for s in (ky_base, *tap)]

    @staticmethod
    def _restart_pixels(m, g, cols_left, rows_left, row_offset, pixel_offset, lane) -> None:
        m.d.sync += [cols_left.eq(g.cols), rows_left.eq(g.rows), row_offset.eq(0), pixel_offset.eq(0), lane.eq(0)]

    def _advance_tap(self, m, g, group, groups, kx, ky, last_kx, last_group, phase, parity, ky_base, tap, pool) -> None:
        """Next group; after the last, next kx; after the last, next ky. The caller restarts after the last ky."""
        with m.If(~last_group):
            m.d.sync += group.eq(group + 1)
        with m.Else():
            m.d.sync += group.eq(0)
            with m.If(last_kx):
                next_ky = ky_base + g.buf_row_pitch
                m.d.sync += [kx.eq(0), ky.eq(ky + 1), phase.eq(0), parity.eq(0), ky_base.eq(next_ky)]
                m.d.sync += [t.eq(next_ky) for t in tap]
            with m.Else():
                m.d.sync += kx.eq(kx + 1)
                if self.config.pixel_lanes == 1:
                    m.d.sync += tap[0].eq(tap[0] + 1)
                else:
                    with m.If(phase + 1 == g.stride):
                        # a grows: one bank goes on, the other back to the start of its group of ``stride`` entries.
                        back = g.stride - 1
                        m.d.sync += [phase.eq(0), parity.eq(~parity)]
                        m.d.sync += tap[0].eq(Mux(parity, tap[0] - back, tap[0] + 1))
                        m.d.sync += tap[1].eq(Mux(parity, tap[1] + 1, tap[1] - back))
                    with m.Else():
                        m.d.sync += phase.eq(phase + 1)
                        m.d.sync += [t.eq(t + 1) for t in tap]

    def _advance_pixel(self, m, g, last_col, cols_left, rows_left, row_offset, pixel_offset, lane, pool) -> None:
        """Next column (POOL) or word of columns (COMPUTE); after the last, next row. After all, the caller restarts."""
        two = self.config.pixel_lanes == 2
        with m.If(last_col):
            next_row = row_offset + g.buf_row_step
            m.d.sync += [cols_left.eq(g.cols), rows_left.eq(rows_left - 1), row_offset.eq(next_row),
                         pixel_offset.eq(next_row), lane.eq(0)]
        with m.Else():
            if two:
                m.d.sync += cols_left.eq(cols_left - Mux(pool, 1, 2))
                with m.If(~pool | lane):
                    m.d.sync += pixel_offset.eq(pixel_offset + g.stride)
                m.d.sync += lane.eq(pool & ~lane)
            else:
                m.d.sync += [cols_left.eq(cols_left - 1), pixel_offset.eq(pixel_offset + g.stride)]
