"""Load engine: memory to input buffer, weight ring and side ring."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect

from ..arch.instruction_layout import INDEX_BITS, instruction_layout, queue_layout
from ..arch.isa import ErrorCode, Opcode, Queue
from ..arch.registers import REGION_BITS, STATE_CODES
from ..buffers.input_buffer import BufferWrite, KeptBeat
from ..bus.axi import MAX_BURST, AxiResponse, read_data_layout, read_request_layout
from ..config import NpuConfig
from ..control.engine_port import EnginePort, connect_shared, lacks
from ..lib.fifo import BufferedFifo, Fifo
from .buffer_writer import BufferWriter

__all__ = ["LoadEngine"]

_STATE = STATE_CODES["load"]


class LoadEngine(wiring.Component):
    """Executes the load queue: asks for data early, writes it in order.

    Two halves. The *requester* waits for ``stores`` tokens, checks the region and turns an instruction into requests,
    as far ahead as the data FIFO has room. The *writer* (`BufferWriter`) follows with the same instructions: it waits
    for the compute token, inserts the padding and delivers a beat a cycle. Room in the FIFO is reserved before data is
    asked for, so the bus never waits.
    """

    #: Beats asked for and not yet taken by the writer: two of the longest bursts, or many short ones.
    FIFO_DEPTH = 512
    #: Instructions whose data is under way behind the one being written.
    CONTEXTS = 8
    #: Cycles from accepting an instruction to its first request, and from a row's last request to the next row's first:
    #: between them a row's range is checked.
    FIRST_REQUEST = ROW_CYCLES = 2

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            **EnginePort(Queue.LOAD).members,
            "request": Out(stream.Signature(read_request_layout(config))),  # reads for the bus
            "response": In(read_data_layout(config)),  # what answers them
            "data_address": In(config.address_width),  # bus address of the data region
            "data_beats": In(REGION_BITS),               # its size
            "write": Out(BufferWrite(config)),  # entries for the input buffer
            **({"kept": In(KeptBeat(config))} if config.local_store else {}),  # beats of local STOREs, which go first
            "weights": Out(stream.Signature(config.beat_bits)),  # to the weight ring
            "side": Out(stream.Signature(config.beat_bits)),  # to the side ring
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.writer = writer = BufferWriter(config)
        m.submodules.contexts = contexts = Fifo(width=len(self.queue.payload.as_value()), depth=self.CONTEXTS)
        m.submodules.fifo = fifo = BufferedFifo(width=config.beat_bits + 2, depth=self.FIFO_DEPTH)

        # -- requester ------------------------------------------------------------------------------------------
        word = data.View(queue_layout(Queue.LOAD), self.queue.payload.word)
        act, wgt, side = word.load_act, word.load_wgt, word.load_side
        geometry = Signal(instruction_layout(Opcode.LOAD_SET))

        running = Signal()
        index = Signal(INDEX_BITS)
        blocks_left, rows_left, rows = Signal.like(act.blocks), Signal.like(act.rows), Signal.like(act.rows)
        cols, left = Signal.like(wgt.beats), Signal.like(wgt.beats)
        row_pitch, block_pitch = Signal.like(geometry.row_pitch), Signal.like(geometry.block_pitch)
        # A bit more than the region's size: a row is checked before the next one is computed, so nothing wraps.
        block_offset, row_offset, offset = (Signal(REGION_BITS + 1, name=name) for name in (
            "block_offset", "row_offset", "offset"))

        waits_store = Signal()
        no_geometry = Signal()      # a LOAD_ACT without a LOAD_SET in front of it
        accept = self.queue.valid & ~running & contexts.w_rdy & ~self.halt
        m.d.comb += waits_store.eq(accept & lacks(self.store_level, act.stores))
        m.d.comb += self.queue.ready.eq(accept & ~waits_store)
        with m.If(self.queue.valid & self.queue.ready):
            m.d.comb += [
                self.store_take.eq(act.stores),
                contexts.w_en.eq(1),
                contexts.w_data.eq(self.queue.payload),
            ]
            m.d.sync += [
                index.eq(self.queue.payload.index),
                blocks_left.eq(1),
                block_pitch.eq(geometry.block_pitch),
                row_pitch.eq(geometry.row_pitch),
                # The offset is the first field of all three operations.
                *[signal.eq(act.offset) for signal in (block_offset, row_offset, offset)],
            ]
            with m.Switch(act.opcode):
                with m.Case(Opcode.LOAD_SET):
                    m.d.sync += geometry.eq(word.load_set)
                with m.Case(Opcode.LOAD_ACT):
                    m.d.sync += [
                        running.eq((act.rows != 0) & (geometry.cols != 0)),
                        no_geometry.eq(geometry.cols == 0),
                        blocks_left.eq(act.blocks),
                        *[signal.eq(act.rows) for signal in (rows, rows_left)],
                        *[signal.eq(geometry.cols) for signal in (cols, left)],
                    ]
                with m.Case(Opcode.LOAD_WGT):
                    m.d.sync += [running.eq(1), rows_left.eq(1), cols.eq(wgt.beats), left.eq(wgt.beats)]
                with m.Case(Opcode.LOAD_SIDE):
                    m.d.sync += [running.eq(1), rows_left.eq(side.rows), row_pitch.eq(side.row_pitch),
                                 cols.eq(side.cols), left.eq(side.cols)]

        # A row's range is checked before its first request; requests are made from registers a cycle later.
        row_checked = Signal()
        out_of_range = Signal()
        with m.If(running & ~row_checked):
            with m.If(row_offset + cols > self.data_beats):
                m.d.comb += out_of_range.eq(1)
            with m.Else():
                m.d.sync += row_checked.eq(1)

        reserved = Signal(range(self.FIFO_DEPTH + 1))
        beats = Signal.like(self.request.p.beats)
        m.d.comb += beats.eq(Mux(left > MAX_BURST, MAX_BURST, left))
        m.d.comb += [
            self.request.valid.eq(running & row_checked & ~self.halt & (reserved + beats <= self.FIFO_DEPTH)),
            self.request.payload.beats.eq(beats),
            self.request.payload.address.eq(self.data_address + offset * config.beat_bytes),
        ]
        asked = Signal()
        m.d.comb += asked.eq(self.request.valid & self.request.ready)
        m.d.sync += reserved.eq(reserved + Mux(asked, beats, 0) - (fifo.r_en & fifo.r_rdy))
        next_row, next_block = row_offset + row_pitch, block_offset + block_pitch
        with m.If(asked):
            m.d.sync += [left.eq(left - beats), offset.eq(offset + beats)]
            with m.If(left == beats):
                m.d.sync += [row_checked.eq(0), left.eq(cols), rows_left.eq(rows_left - 1)]
                m.d.sync += [signal.eq(next_row) for signal in (row_offset, offset)]
                with m.If(rows_left == 1):
                    m.d.sync += [blocks_left.eq(blocks_left - 1), rows_left.eq(rows)]
                    m.d.sync += [signal.eq(next_block) for signal in (block_offset, row_offset, offset)]
                    with m.If(blocks_left == 1):
                        m.d.sync += running.eq(0)

        # -- data ------------------------------------------------------------------------------------------------
        bad_response = (self.response.response == AxiResponse.SLVERR) | (self.response.response == AxiResponse.DECERR)
        m.d.comb += [
            fifo.w_en.eq(self.response.valid),
            fifo.w_data.eq(Cat(self.response.data, bad_response, self.response.response[0])),
            fifo.r_en.eq(writer.input.ready),
            writer.input.valid.eq(fifo.r_rdy),
            writer.input.payload.eq(fifo.r_data[:config.beat_bits]),
        ]
        connect(m, contexts.r_stream, writer.queue)
        failed, decode_error = fifo.r_data[config.beat_bits], fifo.r_data[config.beat_bits + 1]

        # -- writer -----------------------------------------------------------------------------------------------
        connect_shared(m, self, writer, "compute_level", "compute_take", "post_compute", "write", "weights", "side",
                       *(("kept",) if config.local_store else ()))

        # -- report -----------------------------------------------------------------------------------------------
        with m.If(writer.input.valid & writer.input.ready & failed):
            m.d.comb += [
                self.error.valid.eq(1),
                self.error.code.eq(Mux(decode_error, ErrorCode.READ_DECERR, ErrorCode.READ_SLVERR)),
                self.error.index.eq(writer.index),
            ]
        with m.Elif(writer.overrun):
            m.d.comb += [
                self.error.valid.eq(1),
                self.error.code.eq(ErrorCode.BUFFER),
                self.error.index.eq(writer.overrun_index),
            ]
        with m.Elif(no_geometry):
            m.d.comb += [self.error.valid.eq(1), self.error.code.eq(ErrorCode.ILLEGAL), self.error.index.eq(index)]
        with m.Elif(out_of_range):
            m.d.comb += [self.error.valid.eq(1), self.error.code.eq(ErrorCode.READ_RANGE), self.error.index.eq(index)]
        m.d.comb += [
            self.idle.eq(~running & ~writer.queue.valid & writer.idle),
            self.index.eq(Mux(writer.idle, Mux(running, index, self.queue.payload.index), writer.index)),
            self.state.eq(writer.state),
        ]
        with m.If(writer.state == _STATE["idle"]):
            with m.If(waits_store):
                m.d.comb += self.state.eq(_STATE["wait_store"])
            with m.Elif(running | writer.queue.valid | self.queue.valid):
                m.d.comb += self.state.eq(_STATE["setup"])
        return m
