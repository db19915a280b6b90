"""Buffer writer: the delivering half of the load engine."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import NpuConfig
from .input_buffer import ENTRY_BITS, BankShape, buffer_address_bits
from .instruction_layout import INDEX_BITS, QueueEntry, instruction_layout
from .isa import Opcode
from .registers import ENGINE_STATES

__all__ = ["BufferWriter"]

_STATE = {name: code for code, name in enumerate(ENGINE_STATES["load"])}


class BufferWriter(wiring.Component):
    """Take the load queue's data in order and put it where it belongs, a beat a cycle.

    LOAD_ACT: pad and write to the input-buffer banks (docs/architecture.md, "Loading"). LOAD_WGT, LOAD_SIDE: pass on to
    their rings. ``overrun`` when an entry outside the input buffer would be written.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "queue": In(stream.Signature(QueueEntry)),
            "input": In(stream.Signature(config.beat_bits)),
            "compute_level": In(8),
            "compute_take": Out(8),
            "post_compute": Out(1),
            "write_enable": Out(config.banks),
            "write_address": Out(buffer_address_bits(config)),
            "write_data": Out(config.beat_bits),
            "weights": Out(stream.Signature(config.beat_bits)),
            "side": Out(stream.Signature(config.beat_bits)),
            "state": Out(4),
            "index": Out(INDEX_BITS),
            "overrun": Out(1),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        several = config.banks > 1

        word = Value.cast(self.queue.payload.word)
        act, wgt, side = (data.View(instruction_layout(opcode), word)
                          for opcode in (Opcode.LOAD_ACT, Opcode.LOAD_WGT, Opcode.LOAD_SIDE))
        g = Signal(instruction_layout(Opcode.LOAD_SET))

        active, to_weights, to_side, post = Signal(), Signal(), Signal(), Signal()
        index = Signal(INDEX_BITS)
        blocks_left = Signal(10)
        # Padded rows are counted in three phases: padding above, data, padding below; columns likewise.
        rows_top, rows_data, rows_bottom = Signal(6), Signal(10), Signal(6)
        top_left, data_left, bottom_left = Signal(6), Signal(10), Signal(6)
        cols_data = Signal(24)
        left_left, cols_left, right_left = Signal(4), Signal(24), Signal(4)
        block_base, row_base, address = Signal(ENTRY_BITS), Signal(ENTRY_BITS), Signal(ENTRY_BITS)
        phase, bank = Signal(3), Signal(BankShape(config))

        pads = ~to_weights & ~to_side
        in_data_row = (top_left == 0) & (data_left != 0)
        is_data = in_data_row & (left_left == 0) & (cols_left != 0)
        row_end, block_end = Signal(), Signal()
        m.d.comb += [
            row_end.eq((left_left == 0) & Mux(cols_left == 1, right_left == 0, (cols_left == 0) & (right_left == 1))),
            # One row is left: any of the three phases may have no rows.
            block_end.eq(Mux(top_left != 0, (top_left == 1) & (data_left == 0) & (bottom_left == 0),
                             Mux(data_left == 1, bottom_left == 0, (data_left == 0) & (bottom_left == 1)))),
        ]

        # -- one beat -------------------------------------------------------------------------------------------
        sink_ready = Signal()
        m.d.comb += [
            sink_ready.eq(Mux(to_weights, self.weights.ready, Mux(to_side, self.side.ready, 1))),
            self.weights.valid.eq(active & to_weights & self.input.valid),
            self.weights.payload.eq(self.input.payload),
            self.side.valid.eq(active & to_side & self.input.valid),
            self.side.payload.eq(self.input.payload),
            self.input.ready.eq(active & is_data & sink_ready),
        ]
        go = Signal()
        m.d.comb += go.eq(active & Mux(is_data, self.input.valid & sink_ready, 1))
        finish = go & row_end & block_end & (blocks_left == 1)

        m.d.sync += self.write_enable.eq(0)
        with m.If(go & pads):
            m.d.sync += [
                self.write_enable.eq(1 << bank if several else 1),
                self.write_address.eq(address),
                self.write_data.eq(
                    Mux(is_data, self.input.payload, g.pad_value.as_unsigned().replicate(config.beat_bytes))),
            ]
            m.d.comb += self.overrun.eq(address >= config.input_depth)
        with m.If(go):
            with m.If(left_left != 0):
                m.d.sync += left_left.eq(left_left - 1)
            with m.Elif(cols_left != 0):
                m.d.sync += cols_left.eq(cols_left - 1)
            with m.Else():
                m.d.sync += right_left.eq(right_left - 1)
            if several:
                with m.If(phase + 1 == g.stride):
                    # A bank is done with its ``stride`` columns: the next are the next bank's at the same entries.
                    m.d.sync += [
                        phase.eq(0),
                        bank.eq(bank + 1),
                        address.eq(Mux(bank.all(), address + 1, address - phase)),
                    ]
                with m.Else():
                    m.d.sync += [phase.eq(phase + 1), address.eq(address + 1)]
            else:
                m.d.sync += address.eq(address + 1)
            with m.If(row_end):
                next_row = row_base + g.buf_row_pitch
                m.d.sync += [left_left.eq(Mux(pads, g.pad_left, 0)), cols_left.eq(cols_data),
                             right_left.eq(Mux(pads, g.pad_right, 0)), phase.eq(0), bank.eq(0),
                             row_base.eq(next_row), address.eq(next_row)]
                with m.If(top_left != 0):
                    m.d.sync += top_left.eq(top_left - 1)
                with m.Elif(data_left != 0):
                    m.d.sync += data_left.eq(data_left - 1)
                with m.Else():
                    m.d.sync += bottom_left.eq(bottom_left - 1)
                with m.If(block_end):
                    next_block = block_base + g.buf_block_pitch
                    m.d.sync += [top_left.eq(rows_top), data_left.eq(rows_data), bottom_left.eq(rows_bottom),
                                 blocks_left.eq(blocks_left - 1)]
                    m.d.sync += [signal.eq(next_block) for signal in (block_base, row_base, address)]
            with m.If(finish):
                m.d.sync += active.eq(0)
        # The last beat reaches the buffer a cycle later; a token posted with it is seen when it can be read.
        m.d.sync += self.post_compute.eq(finish & post)

        # -- next instruction ------------------------------------------------------------------------------------
        waits_compute = act.wait_compute & (self.compute_level == 0)
        with m.If(self.queue.valid & (~active | finish) & ~waits_compute):
            m.d.comb += [self.queue.ready.eq(1), self.compute_take.eq(act.wait_compute)]
            m.d.sync += [index.eq(self.queue.payload.index), post.eq(act.post_compute), to_weights.eq(0), to_side.eq(0),
                         blocks_left.eq(1), phase.eq(0), bank.eq(0)]
            with m.Switch(act.opcode):
                with m.Case(Opcode.LOAD_SET):
                    m.d.sync += Value.cast(g).eq(word)
                with m.Case(Opcode.LOAD_ACT):
                    m.d.sync += [
                        active.eq(1),
                        blocks_left.eq(act.blocks),
                        *[signal.eq(act.pad_top) for signal in (rows_top, top_left)],
                        *[signal.eq(act.rows) for signal in (rows_data, data_left)],
                        *[signal.eq(act.pad_bottom) for signal in (rows_bottom, bottom_left)],
                        *[signal.eq(g.cols) for signal in (cols_data, cols_left)],
                        left_left.eq(g.pad_left),
                        right_left.eq(g.pad_right),
                        *[signal.eq(act.buf_base) for signal in (block_base, row_base, address)],
                    ]
                with m.Default():
                    is_weights = act.opcode == Opcode.LOAD_WGT
                    count = Mux(is_weights, wgt.beats, side.cols)
                    rows = Mux(is_weights, 1, side.rows)
                    m.d.sync += [
                        active.eq(1),
                        to_weights.eq(is_weights),
                        to_side.eq(~is_weights),
                        *[signal.eq(0) for signal in (rows_top, top_left, rows_bottom, bottom_left, left_left,
                                                      right_left)],
                        *[signal.eq(rows) for signal in (rows_data, data_left)],
                        *[signal.eq(count) for signal in (cols_data, cols_left)],
                    ]

        # -- report ------------------------------------------------------------------------------------------------
        m.d.comb += [
            self.idle.eq(~active & ~self.queue.valid & ~self.write_enable.any()),
            self.index.eq(Mux(active, index, self.queue.payload.index)),
        ]
        with m.If(go):
            m.d.comb += self.state.eq(_STATE["busy"])
        with m.Elif(active & ~self.input.valid):
            m.d.comb += self.state.eq(_STATE["wait_bus"])
        with m.Elif(active):
            m.d.comb += self.state.eq(_STATE["wait_ring"])
        with m.Elif(self.queue.valid & waits_compute):
            m.d.comb += self.state.eq(_STATE["wait_compute"])
        with m.Elif(self.queue.valid):
            m.d.comb += self.state.eq(_STATE["setup"])
        return m
