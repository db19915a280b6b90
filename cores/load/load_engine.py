"""Load engine: memory to input buffer, weight ring and side ring."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out, connect

from ..arch.axi import AxiResponse
from ..arch.error_codes import ErrorCode
from ..arch.isa import Queue
from ..arch.registers import REGION_BITS, STATE_CODES
from ..buffers.input_buffer import BufferWrite, kept_port
from ..bus.axi import read_data_layout, read_request_layout
from ..bus.parts import check_of
from ..config import NpuConfig
from ..control.engine_port import EnginePort, connect_shared
from ..lib.component import Component, record
from ..lib.fifo import BufferedFifo, ShallowFifo
from ..timing.load import LoadEngineTiming
from .buffer_writer import BufferWriter
from .load_context import LoadContext
from .load_requester import LoadRequester

__all__ = ["LoadEngine"]

_STATE = STATE_CODES["load"]


class LoadEngine(LoadEngineTiming, Component):
    """Executes the load queue: asks for data early, writes it in order.

    Two halves. The *requester* (`LoadRequester`) waits for ``stores`` tokens, checks the region and turns an
    instruction into requests, as far ahead as the data FIFO has room. The *writer* (`BufferWriter`) follows with the
    same instructions: it waits for the compute token, inserts the padding and delivers a beat a cycle. Room in the FIFO
    is reserved before data is asked for, so the bus never waits.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            **EnginePort(Queue.LOAD).members,
            "request": Out(stream.Signature(read_request_layout(config))),  # reads for the bus
            "response": In(read_data_layout(config)),  # what answers them
            "data_address": In(config.address_width),  # bus address of the data region
            "data_beats": In(REGION_BITS),               # its size
            "write": Out(BufferWrite(config)),  # entries for the input buffer
            **kept_port(config, In),            # beats of local STOREs, which go first
            "weights": Out(stream.Signature(config.beat_bits)),  # to the weight ring
            "side": Out(stream.Signature(config.beat_bits)),  # to the side ring
            **check_of(config).load_ports(),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.writer = writer = BufferWriter(config)
        m.submodules.requester = requester = LoadRequester(config, depth=self.FIFO_DEPTH)
        m.submodules.contexts = contexts = ShallowFifo(width=LoadContext.size, depth=self.CONTEXTS)
        m.submodules.fifo = fifo = BufferedFifo(width=config.beat_bits + 2, depth=self.FIFO_DEPTH)

        # -- requester ------------------------------------------------------------------------------------------
        connect_shared(m, self, requester, "queue", "store_level", "store_take", "request", "data_address",
                       "data_beats", "halt")
        m.d.comb += [
            requester.room.eq(contexts.w_rdy),
            contexts.w_en.eq(requester.hand_on),
            contexts.w_data.eq(requester.context),
            requester.popped.eq(fifo.r_en & fifo.r_rdy),
        ]
        writer.path.supply(m, self, requester, writer)
        check_of(config).connect_load(m, self, requester)

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
                       *kept_port(config, In))

        # -- report -----------------------------------------------------------------------------------------------
        # All of it a cycle after what it tells of; an error of a beat, or of an entry, two.
        bad_beat, bad_code = Signal(), record(ErrorCode)
        m.d.sync += [
            bad_beat.eq(writer.input.valid & writer.input.ready & failed),
            bad_code.eq(Mux(decode_error, ErrorCode.READ_DECERR, ErrorCode.READ_SLVERR)),
            self.error.eq(requester.error),
        ]
        with m.If(bad_beat):
            m.d.sync += [self.error.valid.eq(1), self.error.code.eq(bad_code),
                         self.error.index.eq(writer.input_index)]
        with m.Elif(writer.overrun):
            m.d.sync += [self.error.valid.eq(1), self.error.code.eq(ErrorCode.BUFFER),
                         self.error.index.eq(writer.overrun_index)]
        # An instruction that comes now, or is on its way to the writer, is work.
        coming, idle = self.queue.valid | requester.running | contexts.some, Signal()
        m.d.comb += idle.eq(~coming & writer.idle)
        m.d.sync += [self.idle.eq(idle), self.state.eq(writer.state)]
        # With nothing in hand it stays: what the queue shows is no instruction then, and undefined until the first one.
        with m.If(~idle):
            m.d.sync += self.index.eq(Mux(
                writer.idle, Mux(requester.running, requester.index, self.queue.payload.index), writer.index))
        with m.If(writer.working):
            m.d.sync += self.state.eq(_STATE["busy"])
        with m.Elif(writer.resting):
            with m.If(requester.waits_store):
                m.d.sync += self.state.eq(_STATE["wait_store"])
            with m.Elif(coming):
                m.d.sync += self.state.eq(_STATE["setup"])
        return m
