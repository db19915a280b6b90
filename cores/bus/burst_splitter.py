"""Cuts runs of beats into AXI bursts."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .axi import BOUNDARY_BYTES, LENGTH_BITS, MAX_BURST

__all__ = ["BurstSplitter"]


class BurstSplitter(wiring.Component):
    """A run of ``beats`` (1 or more) from ``address`` becomes bursts of up to ``burst_beats`` inside a 4 KiB page each.

    One burst a cycle, also across runs. ``tag`` goes with every burst of its run. A burst ends at a multiple
    of ``burst_beats`` beats at the latest, so every run that crosses one is cut there.

    Raises ValueError when ``beat_bytes`` is no power of two in 4..128, ``beats_width`` or ``tag_width`` is not
    positive, or ``burst_beats`` is no power of two that one burst can have.
    """

    #: Cycles from a run to its first burst.
    LATENCY = 1

    def __init__(self, *, address_width: int, beat_bytes: int, beats_width: int, tag_width: int, burst_beats: int):
        if beat_bytes not in (4, 8, 16, 32, 64, 128):
            raise ValueError(f"beat_bytes must be a power of two in 4..128, not {beat_bytes!r}")
        if beats_width < 1:
            raise ValueError(f"beats_width must be positive, not {beats_width!r}")
        if tag_width < 1:
            raise ValueError(f"tag_width must be positive, not {tag_width!r}")
        limit = min(MAX_BURST, BOUNDARY_BYTES // beat_bytes)
        if burst_beats < 2 or burst_beats & (burst_beats - 1) or burst_beats > limit:
            raise ValueError(f"burst_beats must be a power of two in 2..{limit}, not {burst_beats!r}")
        self.beat_bytes, self.burst_beats = beat_bytes, burst_beats
        super().__init__({
            # Beats in a row, one or more.
            "run": In(stream.Signature(data.StructLayout(
                {"address": address_width, "beats": beats_width, "tag": tag_width}))),
            # AXI's length, beats - 1; ``final`` marks the run's last.
            "burst": Out(stream.Signature(data.StructLayout(
                {"address": address_width, "length": LENGTH_BITS, "final": 1, "tag": tag_width}))),
            "idle": Out(1),  # no run is in hand
        })

    def elaborate(self, platform):
        m = Module()
        valid = Signal()
        run = Signal(self.run.p.shape())
        shift = (self.beat_bytes - 1).bit_length()
        low_bits = (self.burst_beats - 1).bit_length()
        low = run.address[shift:shift + low_bits]
        page = run.address[shift + low_bits:]

        room = Signal(low_bits)      # beats to the boundary - 1
        above = Signal()             # the run goes on behind the boundary
        m.d.comb += [
            room.eq(~low),
            above.eq(run.beats > room + 1),
            self.burst.p.address.eq(run.address),
            self.burst.p.length.eq(Mux(above, room, (run.beats - 1)[:low_bits])),
            self.burst.p.final.eq(~above),
            self.burst.p.tag.eq(run.tag),
            self.burst.valid.eq(valid),
            self.run.ready.eq(~valid | (self.burst.ready & ~above)),
            self.idle.eq(~valid),
        ]
        with m.If(self.run.ready):
            m.d.sync += [valid.eq(self.run.valid), run.eq(self.run.p)]
        with m.Elif(self.burst.ready):
            m.d.sync += [
                run.beats.eq(run.beats - room - 1),
                run.address.eq(Cat(run.address[:shift], Const(0, low_bits), (page + 1)[:len(page)])),
            ]
        return m
