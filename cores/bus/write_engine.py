"""Writes the store engine's beats to memory."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from ..arch.axi import BOUNDARY_BYTES, LENGTH_BITS, MAX_BURST, AxiResponse
from ..arch.error_codes import ErrorCode
from ..arch.instruction_layout import INDEX_BITS
from ..config import NpuConfig
from ..lib.component import Component
from ..lib.fifo import Fifo
from ..timing.bus import WriteEngineTiming
from .axi import Axi4Write, ErrorReport, memory_attributes, write_run_layout
from .burst_splitter import BurstSplitter
from .parts import check_of

__all__ = ["WriteEngine"]


class WriteEngine(WriteEngineTiming, Component):
    """Turns runs of beats into AXI4 bursts; ``data`` delivers exactly the beats of the runs, in order.

    One address and one beat a cycle, ``outstanding_writes`` bursts in flight. Addresses go out as soon as their run is
    known, ahead of the data.

    A SLVERR or DECERR response is reported with the run's index. ``halt`` drops what has no address on the bus yet, and
    completes the rest with beats without strobes; ``idle`` then says that the bus is quiet.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "run": In(stream.Signature(write_run_layout(config))),  # where the next beats go
            "data": In(stream.Signature(config.beat_bits)),  # the runs' beats, in order
            "stored": Out(1),           # every run up to one with ``last`` and ``post`` has been answered
            "axi": Out(Axi4Write(address_width=config.address_width, data_bits=config.beat_bits)),  # memory
            "error": Out(ErrorReport),  # of a response, with its run's instruction
            "halt": In(1),              # take no more runs
            "idle": Out(1),             # the bus is quiet
            "beat": Out(1),             # a beat is on the bus
            "handshake": Out(1),        # any transfer is
            **check_of(config).write_ports(),
        })

    def elaborate(self, platform):
        m = Module()
        config, axi = self.config, self.axi
        tag_layout = data.StructLayout({"last": 1, "post": 1, "index": INDEX_BITS})
        m.submodules.splitter = splitter = BurstSplitter(
            address_width=config.address_width, beat_bytes=config.beat_bytes, length_width=len(self.run.p.length),
            tag_width=tag_layout.size, burst_beats=min(MAX_BURST, BOUNDARY_BYTES // config.beat_bytes))
        # Bursts after the one whose beats are sent (AWLEN), and bursts still to be answered (index, whether to
        # report).
        m.submodules.lengths = lengths = Fifo(width=LENGTH_BITS, depth=config.outstanding_writes)
        m.submodules.answers = answers = Fifo(width=1 + INDEX_BITS, depth=config.outstanding_writes)
        m.submodules.buffer = buffer = Fifo(width=config.beat_bits, depth=self.BUFFER_BEATS)

        m.d.comb += [getattr(axi, name).eq(value) for name, value in memory_attributes("aw", config).items()]
        tag = data.View(tag_layout, splitter.burst.p.tag)
        issue = Signal()
        # Bursts unanswered include those unsent, so ``lengths`` always has room when ``answers`` has.
        may_go = (~axi.awvalid | axi.awready) & answers.w_rdy & ~self.halt
        for passes in check_of(config).passes_write(m, self, splitter, issue, tag.index):
            may_go &= passes
        m.d.comb += [
            splitter.run.valid.eq(self.run.valid & ~self.halt),
            splitter.run.p.address.eq(self.run.p.address),
            splitter.run.p.length.eq(self.run.p.length),
            splitter.run.p.tag.eq(Cat(self.run.p.last, self.run.p.post, self.run.p.index)),
            self.run.ready.eq(splitter.run.ready & ~self.halt),
            splitter.burst.ready.eq(may_go),
            issue.eq(splitter.burst.valid & splitter.burst.ready),
            lengths.w_en.eq(issue),
            lengths.w_data.eq(splitter.burst.p.length),
            answers.w_en.eq(issue),
            answers.w_data.eq(Cat(splitter.burst.p.final & tag.last & tag.post, tag.index)),
        ]
        with m.If(issue):
            m.d.sync += [
                axi.awvalid.eq(1),
                axi.awaddr.eq(splitter.burst.p.address),
                axi.awlen.eq(splitter.burst.p.length),
            ]
        with m.Elif(axi.awready):
            m.d.sync += axi.awvalid.eq(0)

        # Once ``flush`` is up the rest of the bursts is sent without strobes. It must not change a beat that waits on
        # the bus: not its strobes (so it waits for a beat boundary) and not its data (so nothing enters the buffer).
        flush = Signal()
        # The burst whose beats are sent, and how many are after the one at hand.
        sending, behind, next_burst = Signal(), Signal(LENGTH_BITS), Signal()
        with m.If(self.halt & (~axi.wvalid | axi.wready)):
            m.d.sync += flush.eq(1)
        m.d.comb += [
            self.data.ready.eq(buffer.w_rdy & ~flush),
            buffer.w_en.eq(self.data.valid & ~flush),
            buffer.w_data.eq(self.data.payload),
            axi.wvalid.eq(sending & (buffer.r_rdy | flush)),
            axi.wdata.eq(buffer.r_data),
            # Inverted byte by byte: as one bit for all, the port would follow from itself in the Verilog.
            axi.wstrb.eq(~flush.replicate(len(axi.wstrb))),
            self.beat.eq(axi.wvalid & axi.wready),
            buffer.r_en.eq(self.beat & ~flush),
            next_burst.eq(~sending | (self.beat & axi.wlast)),
            lengths.r_en.eq(next_burst),
        ]
        with m.If(next_burst):
            m.d.sync += [sending.eq(lengths.r_rdy), behind.eq(lengths.r_data), axi.wlast.eq(lengths.r_data == 0)]
        with m.Elif(self.beat):
            m.d.sync += [behind.eq(behind - 1), axi.wlast.eq(behind == 1)]

        failed = Signal()
        m.d.comb += [
            axi.bready.eq(1),
            failed.eq(axi.bresp.matches(AxiResponse.SLVERR, AxiResponse.DECERR)),
            answers.r_en.eq(axi.bvalid),
            self.handshake.eq(self.beat | axi.bvalid | (axi.awvalid & axi.awready)),
            self.idle.eq(~axi.awvalid & ~answers.r_rdy & (splitter.idle | self.halt)),
        ]
        m.d.sync += [
            self.stored.eq(axi.bvalid & ~failed & answers.r_data[0]),
            self.error.valid.eq(axi.bvalid & failed),
            self.error.code.eq(Mux(axi.bresp == AxiResponse.SLVERR, ErrorCode.WRITE_SLVERR, ErrorCode.WRITE_DECERR)),
            self.error.index.eq(answers.r_data[1:]),
        ]
        return m
