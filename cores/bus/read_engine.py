"""Reads memory for the instruction fetch and the load engine."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out, connect

from ..arch.axi import BOUNDARY_BYTES, MAX_BURST
from ..config import NpuConfig
from ..lib.component import Component, record
from ..lib.fifo import Fifo
from ..lib.skid_buffer import SkidBuffer
from ..timing.bus import ReadEngineTiming
from .axi import Axi4Read, memory_attributes, read_data_layout, read_request_layout
from .burst_splitter import BurstSplitter
from .parts import check_of

__all__ = ["ReadEngine"]


class ReadEngine(ReadEngineTiming, Component):
    """Turns requests of up to 256 beats into AXI4 bursts and hands the beats back in the order of the requests.

    One address and one beat a cycle; ``outstanding_reads`` bursts in flight. Fetch requests go before load requests.
    The requesters take every beat when it comes, so the bus never waits for them.

    ``halt`` also drops what has not reached the bus; ``idle`` then says that the bus is quiet.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        request = stream.Signature(read_request_layout(config))
        super().__init__({
            "fetch_request": In(request),  # of instruction fetch
            "load_request": In(request),   # of the load engine
            "fetch_data": Out(read_data_layout(config)),  # what answers fetch's requests
            "load_data": Out(read_data_layout(config)),  # what answers the load engine's
            "axi": Out(Axi4Read(address_width=config.address_width, data_bits=config.beat_bits)),  # memory
            "halt": In(1),                 # take no more requests
            "idle": Out(1),                # the bus is quiet
            "beat": Out(1),                # a beat is on the bus
            "handshake": Out(1),           # any transfer is
            **check_of(config).read_ports(),
        })

    def elaborate(self, platform):
        m = Module()
        config, axi, check = self.config, self.axi, check_of(self.config)
        m.submodules.splitter = splitter = BurstSplitter(
            address_width=config.address_width, beat_bytes=config.beat_bytes,
            length_width=len(self.load_request.p.length), tag_width=1 + check.READ_TAG_BITS,
            burst_beats=min(MAX_BURST, BOUNDARY_BYTES // config.beat_bytes))
        # What requesters hear of the bus ends here: their ``ready`` comes from a register.
        m.submodules.requests = requests = SkidBuffer(splitter.run.p.shape())
        connect(m, requests.output, splitter.run)
        # One entry for each burst in flight: for whom it is, and whether it ends its request.
        m.submodules.flight = flight = Fifo(width=2, depth=config.outstanding_reads)

        from_load = Signal()
        fetch, load = self.fetch_request.p, self.load_request.p
        m.d.comb += [
            from_load.eq(~self.fetch_request.valid),
            requests.input.valid.eq((self.fetch_request.valid | self.load_request.valid) & ~self.halt),
            requests.input.p.address.eq(Mux(from_load, load.address, fetch.address)),
            requests.input.p.length.eq(Mux(from_load, load.length, fetch.length)),
            requests.input.p.tag.eq(check.read_tag(m, self, from_load)),
            self.fetch_request.ready.eq(requests.input.ready & ~self.halt),
            self.load_request.ready.eq(requests.input.ready & from_load & ~self.halt),
        ]

        m.d.comb += [getattr(axi, name).eq(value) for name, value in memory_attributes("ar", config).items()]
        issue = Signal()
        may_go = (~axi.arvalid | axi.arready) & flight.w_rdy & ~self.halt
        for passes in check.passes_read(m, self, splitter, issue):
            may_go &= passes
        m.d.comb += [
            splitter.burst.ready.eq(may_go),
            issue.eq(splitter.burst.valid & splitter.burst.ready),
            flight.w_en.eq(issue),
            flight.w_data.eq(Cat(check.of_load(splitter.burst.p.tag), splitter.burst.p.final)),
        ]
        with m.If(issue):
            m.d.sync += [
                axi.arvalid.eq(1),
                axi.araddr.eq(splitter.burst.p.address),
                axi.arlen.eq(splitter.burst.p.length),
            ]
        with m.Elif(axi.arready):
            m.d.sync += axi.arvalid.eq(0)

        for_load, final = flight.r_data[0], flight.r_data[1]
        m.d.comb += [
            axi.rready.eq(1),
            self.beat.eq(axi.rvalid),
            self.handshake.eq(axi.rvalid | (axi.arvalid & axi.arready)),
            flight.r_en.eq(axi.rvalid & axi.rlast),
            self.idle.eq(~axi.arvalid & ~flight.r_rdy & ((splitter.idle & ~requests.waits) | self.halt)),
        ]
        arrived = record(read_data_layout(config))
        arrived_for_load = Signal()
        m.d.sync += [
            arrived.valid.eq(axi.rvalid),
            arrived.data.eq(axi.rdata),
            arrived.last.eq(axi.rlast & final),
            arrived.response.eq(axi.rresp),
            arrived_for_load.eq(for_load),
        ]
        m.d.comb += [
            self.fetch_data.eq(arrived),
            self.load_data.eq(arrived),
            self.fetch_data.valid.eq(arrived.valid & ~arrived_for_load),
            self.load_data.valid.eq(arrived.valid & arrived_for_load),
        ]
        return m
