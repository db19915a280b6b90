"""Cuts runs of beats into AXI bursts."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from ..arch.axi import BOUNDARY_BYTES, LENGTH_BITS, MAX_BURST
from ..lib.component import Component
from ..timing.bus import BurstSplitterTiming

__all__ = ["BurstSplitter"]


class BurstSplitter(BurstSplitterTiming, Component):
    """A run of ``length`` + 1 beats from ``address`` becomes bursts of up to ``burst_beats`` inside a 4 KiB page each.

    One burst a cycle, also across runs. ``tag`` goes with every burst of its run. A burst ends at a multiple
    of ``burst_beats`` beats at the latest, so every run that crosses one is cut there. That a burst is its run's last
    is known when it is offered.

    Raises ValueError when ``beat_bytes`` is no power of two in 4..128, ``length_width`` or ``tag_width`` is not
    positive, or ``burst_beats`` is no power of two that one burst can have.
    """

    def __init__(self, *, address_width: int, beat_bytes: int, length_width: int, tag_width: int, burst_beats: int):
        if beat_bytes not in (4, 8, 16, 32, 64, 128):
            raise ValueError(f"beat_bytes must be a power of two in 4..128, not {beat_bytes!r}")
        if length_width < 1:
            raise ValueError(f"length_width must be positive, not {length_width!r}")
        if tag_width < 1:
            raise ValueError(f"tag_width must be positive, not {tag_width!r}")
        limit = min(MAX_BURST, BOUNDARY_BYTES // beat_bytes)
        if burst_beats < 2 or burst_beats & (burst_beats - 1) or burst_beats > limit:
            raise ValueError(f"burst_beats must be a power of two in 2..{limit}, not {burst_beats!r}")
        self.beat_bytes, self.burst_beats = beat_bytes, burst_beats
        super().__init__({
            # Beats in a row; ``length``, here and below, is AXI's: one less than they are.
            "run": In(stream.Signature(data.StructLayout(
                {"address": address_width, "length": length_width, "tag": tag_width}))),
            # ``final`` marks the run's last.
            "burst": Out(stream.Signature(data.StructLayout(
                {"address": address_width, "length": LENGTH_BITS, "final": 1, "tag": tag_width}))),
            "idle": Out(1),  # no run is in hand
        })

    def elaborate(self, platform):
        m = Module()
        shift = (self.beat_bytes - 1).bit_length()
        low_bits = (self.burst_beats - 1).bit_length()
        run, burst = self.run.p, self.burst.p

        def place(address: Value) -> Value:
            """The beat of ``address`` in its page."""
            return address[shift:shift + low_bits]

        valid, address, tag = Signal(), Signal.like(run.address), Signal.like(run.tag)
        # The length of the run's last burst: if it has but one, its own, else the place of its last beat.
        last_length, last_place = Signal(low_bits), Signal(low_bits)
        # Boundaries that are after the burst at hand; there is one, so it goes up to it.
        boundaries, goes_on = Signal(max(len(run.length) - low_bits, 0) + 1), Signal()
        run_end = Signal(low_bits + len(boundaries))
        m.d.comb += [
            run_end.eq(place(run.address) + run.length),
            burst.address.eq(address),
            burst.length.eq(Mux(goes_on, ~place(address), last_length)),
            burst.final.eq(~goes_on),
            burst.tag.eq(tag),
            self.burst.valid.eq(valid),
            self.run.ready.eq(~valid | (self.burst.ready & ~goes_on)),
            self.idle.eq(~valid),
        ]
        with m.If(self.run.ready):
            m.d.sync += [
                valid.eq(self.run.valid),
                address.eq(run.address),
                tag.eq(run.tag),
                last_length.eq(run.length),
                last_place.eq(run_end),
                boundaries.eq(run_end[low_bits:]),
                goes_on.eq(run_end[low_bits:].any()),
            ]
        with m.Elif(self.burst.ready):
            page = address[shift + low_bits:]
            m.d.sync += [
                address.eq(Cat(address[:shift], Const(0, low_bits), (page + 1)[:len(page)])),
                last_length.eq(last_place),
                boundaries.eq(boundaries - 1),
                goes_on.eq(boundaries != 1),
            ]
        return m
