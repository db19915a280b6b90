"""Reads memory over two ports of half a beat each."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out, connect

from ..arch.axi import LENGTH_BITS, MAX_BURST
from ..lib.component import Component
from ..lib.fifo import BufferedFifo, Fifo
from ..lib.skid_buffer import SkidBuffer
from ..timing.bus import ReadPortsTiming
from .axi import Axi4Read
from .burst_splitter import BurstSplitter

__all__ = ["PORTS", "ReadPorts"]

#: Memory ports, each of which brings half of the bits of a beat.
PORTS = 2


class ReadPorts(ReadPortsTiming, Component):
    """The read channels of a wide AXI4 master, on two memory ports of half its width.

    Bursts are cut into pieces of up to ``piece`` beats, each of which goes to the port that has fewer beats to bring;
    their beats are put together in order. Both ports busy, they bring a wide beat a cycle. A piece is asked for when
    there is room for all of it, so neither port ever waits to deliver. One ID, INCR bursts of full width inside a 4 KiB
    page, as `ReadEngine` makes them; attributes go on as they are. A wide beat has the worse of its halves' responses.

    Raises ValueError when ``data_bits`` is no power of two in 64..1024, or ``piece``, ``depth`` no powers of two with
    2 <= ``piece`` <= 128 and ``depth`` at least four pieces.
    """

    #: Pieces in flight.
    PIECES = 64

    def __init__(self, *, address_width: int, data_bits: int, piece: int = 8, depth: int = 256):
        if data_bits not in (64, 128, 256, 512, 1024):
            raise ValueError(f"data_bits must be a power of two in 64..1024, not {data_bits!r}")
        if piece < 2 or piece & (piece - 1) or PORTS * piece > MAX_BURST:
            raise ValueError(f"piece must be a power of two in 2..{MAX_BURST // PORTS}, not {piece!r}")
        if depth < 4 * piece or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two from {4 * piece} on, not {depth!r}")
        self.address_width, self.data_bits, self.piece, self.depth = address_width, data_bits, piece, depth
        narrow = Axi4Read(address_width=address_width, data_bits=data_bits // PORTS)
        super().__init__({
            "wide": In(Axi4Read(address_width=address_width, data_bits=data_bits)),  # the master
            **{f"port{number}": Out(narrow) for number in range(PORTS)},  # memory
        })

    def elaborate(self, platform):
        m = Module()
        wide, ports = self.wide, [getattr(self, f"port{number}") for number in range(PORTS)]
        beat_bytes = self.data_bits // 8

        # -- addresses ---------------------------------------------------------------------------------------------
        m.submodules.splitter = splitter = BurstSplitter(
            address_width=self.address_width, beat_bytes=beat_bytes, length_width=LENGTH_BITS, tag_width=1,
            burst_beats=self.piece)
        # What the master hears of the ports ends here.
        m.submodules.requests = requests = SkidBuffer(splitter.run.p.shape())
        connect(m, requests.output, splitter.run)
        # An entry for each piece in flight: whose it is, and whether it ends the master's burst.
        m.submodules.flight = flight = Fifo(width=2, depth=self.PIECES)
        m.d.comb += [
            requests.input.valid.eq(wide.arvalid),
            requests.input.p.address.eq(wide.araddr),
            requests.input.p.length.eq(wide.arlen),
            requests.input.p.tag.eq(0),
            wide.arready.eq(requests.input.ready),
        ]
        burst, issue, chosen = splitter.burst.p, Signal(), Signal()
        # Whether a port can take a piece, and its beats that are still to come.
        able, coming = Signal(PORTS), [Signal(range(self.depth), name=f"coming{port}") for port in range(PORTS)]
        fewer = Signal()    # port 1 has fewer to bring, as of the last cycle
        m.d.sync += fewer.eq(coming[1] < coming[0])
        m.d.comb += [
            chosen.eq(Mux(fewer, able[1], ~able[0])),
            splitter.burst.ready.eq(able.any() & flight.w_rdy),
            issue.eq(splitter.burst.valid & splitter.burst.ready),
            flight.w_en.eq(issue),
            flight.w_data.eq(Cat(chosen, burst.final)),
        ]

        # -- the ports -----------------------------------------------------------------------------------------------
        entry = data.StructLayout({"data": self.data_bits, "response": 2, "last": 1})
        heads, taken = [], Signal(PORTS)
        for number, port in enumerate(ports):
            mine = issue & (chosen == number)
            m.submodules[f"beats{number}"] = beats = BufferedFifo(width=entry.size, depth=self.depth)
            # Places that no beat is meant for. There is enough if there was in the last cycle, with a piece to spare.
            room, enough = Signal(range(self.depth), init=self.depth - 1), Signal(init=1)
            asked, arrived = Signal(range(self.piece + 1)), Signal()
            half, halves = Signal(self.data_bits // PORTS, reset_less=True), Signal()
            half_response = Signal(2, reset_less=True)
            written = data.View(entry, beats.w_data)
            m.d.comb += [
                able[number].eq(enough & (~port.arvalid | port.arready)),
                asked.eq(Mux(mine, burst.length + 1, 0)),
                port.rready.eq(1),
                arrived.eq(port.rvalid & halves),
                written.data.eq(Cat(half, port.rdata)),
                # Errors, SLVERR and DECERR, have the upper bit.
                written.response.eq(Mux(half_response[1], half_response, port.rresp)),
                written.last.eq(port.rlast),
                beats.w_en.eq(arrived),
                beats.r_en.eq(taken[number]),
            ]
            m.d.sync += [
                coming[number].eq(coming[number] + asked - arrived),
                room.eq(room - asked + taken[number]),
                enough.eq(room >= 2 * self.piece),
            ]
            with m.If(port.rvalid):
                m.d.sync += halves.eq(~halves)
                with m.If(~halves):
                    m.d.sync += [half.eq(port.rdata), half_response.eq(port.rresp)]
            with m.If(mine):
                m.d.sync += [
                    port.arvalid.eq(1),
                    port.araddr.eq(burst.address),
                    port.arlen.eq(Cat(Const(1, 1), burst.length)),
                ]
            with m.Elif(port.arready):
                m.d.sync += port.arvalid.eq(0)
            m.d.comb += [
                port.arid.eq(0), port.arsize.eq((beat_bytes // PORTS - 1).bit_length()), port.arburst.eq(wide.arburst),
                port.arcache.eq(wide.arcache), port.arprot.eq(wide.arprot),
            ]
            heads.append((beats.r_rdy, data.View(entry, beats.r_data)))

        # -- in order ------------------------------------------------------------------------------------------------
        source, final = flight.r_data[0], flight.r_data[1]
        valid, last = Signal(), Signal()
        m.d.comb += [
            valid.eq(flight.r_rdy & Mux(source, heads[1][0], heads[0][0])),
            wide.rid.eq(0),
            wide.rvalid.eq(valid),
            wide.rdata.eq(Mux(source, heads[1][1].data, heads[0][1].data)),
            wide.rresp.eq(Mux(source, heads[1][1].response, heads[0][1].response)),
            last.eq(Mux(source, heads[1][1].last, heads[0][1].last)),
            wide.rlast.eq(last & final),
            taken.eq(Mux(valid & wide.rready, Mux(source, 2, 1), 0)),
            flight.r_en.eq(valid & wide.rready & last),
        ]
        return m
