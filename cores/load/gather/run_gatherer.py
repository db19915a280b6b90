"""Run gatherer: the beats of rows become entries of the input buffer."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from ...arch.numerics import half_of
from ...config import NpuConfig
from ...lib.bits import lanes_below
from ...lib.component import Component, record
from ...timing.gather import RunGathererTiming
from .byte_window import ByteWindow
from .run_walk import Run, beat_number

__all__ = ["RunGatherer"]


class RunGatherer(RunGathererTiming, Component):
    """Cut runs of bytes out of beats, as one or ``write_lanes`` entries of neighbouring banks a cycle.

    Beats come a cycle after ``enter``, when there is ``room``, and are numbered from reset on; a run sets out
    (``emit``) when the last beat that it needs is in the window. ``row_end``, ``block_end``, ``box_end``: it is the
    last of these. ``wrap``: the next block begins another entry. Its data, ``bytes`` and ``zero`` follow `LATENCY`
    cycles after it. ``hold`` lets none set out.

    Rate: a beat in and a pair out in every cycle, also from row to row and from box to box. Golden model:
    ``sim.gather.gather_row``.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        self.lane_bits = 9 if config.binary_rows else 8
        super().__init__({
            "runs": In(stream.Signature(Run(config))),  # to be cut out, in order
            "enter": In(1),                    # a beat comes in the next cycle, if there is ``room``
            "beat": In(data.ArrayLayout(unsigned(8), config.beat_bytes)),  # bytes of the one of a cycle ago
            "present": In(config.beat_bytes),  # those that do not count as padding
            "room": Out(1, init=1),  # type: ignore[call-arg]  # for a beat
            "hold": In(1),                     # let no run set out
            "emit": Out(config.write_lanes),   # a run, or several of neighbouring banks, sets out
            "row_end": Out(1),                 # the last of its row
            "block_end": Out(1),               # the last of its block
            "box_end": Out(1),                 # the last of its box
            "wrap": Out(1),                    # the next block begins another entry
            "data": Out(config.write_lanes * config.beat_bits),  # of what set out `LATENCY` cycles ago
            "bytes": Out(config.beat_bytes),   # of its entries that it has
            "zero": Out(data.ArrayLayout(2, config.write_lanes)),  # of its entries, which halves are padding as a whole
        })

    def elaborate(self, platform):
        m = Module()
        config, lanes, bits = self.config, self.config.beat_bytes, beat_number(self.config)
        m.submodules.window = window = ByteWindow(lanes=lanes, runs=config.write_lanes, lane_bits=self.lane_bits)

        # -- which run, and when --------------------------------------------------------------------------------------
        # The run at hand, and as signed numbers how far the beats are beyond the last that it needs, and beyond the one
        # that it begins in. In a box runs are always ahead of their beats: without one, what enters is after a box's
        # last run, or the next one's first beat.
        run = record(Run(config))
        waiting = Signal()
        entered = Signal(bits)      # beats, as their numbers go
        beyond_last = Signal(signed(bits))
        beyond_first = Signal(signed(bits))
        go, load = Signal(), Signal()
        m.d.comb += [
            go.eq(waiting & (beyond_last >= 0) & ~self.hold),
            self.runs.ready.eq(~waiting | go),
            load.eq(self.runs.valid & self.runs.ready),
        ]
        m.d.sync += entered.eq(entered + self.enter)
        for beyond, number in ((beyond_last, self.runs.p.last), (beyond_first, self.runs.p.first)):
            # ``entered`` less ``number`` less one; the beat that enters now is the carry. Whether a run is loaded comes
            # late and only chooses.
            loaded = (Cat(Const(1, 1), entered) + Cat(self.enter, ~number))[1:]
            m.d.sync += beyond.eq(Mux(load, loaded, beyond + self.enter))
        with m.If(self.runs.ready):
            m.d.sync += waiting.eq(self.runs.valid)
        self._keep_room(m, behind=(entered - self.runs.p.first)[:bits], beyond=beyond_first,
                        load=load, waits=self.runs.valid | (waiting & ~go))
        turn = record(data.ArrayLayout(range(lanes), config.write_lanes))
        with m.If(load):
            m.d.sync += [run.eq(self.runs.p),
                         *[turn[number].eq(self.runs.p.offset[number] - self.runs.p.place)
                           for number in range(config.write_lanes)]]

        # -- what sets out --------------------------------------------------------------------------------------------
        entry_bytes = Signal(lanes)
        m.d.comb += [
            self.emit.eq(Mux(go, Mux(run.alone, 1, (1 << config.write_lanes) - 1), 0)),
            self.row_end.eq(run.row_end),
            self.block_end.eq(run.block_end),
            self.box_end.eq(run.box_end),
            self.wrap.eq(run.end >= lanes),
            window.enter.eq(self.enter),
            window.enter_slot.eq(entered),
            Value.cast(window.slot).eq(run.slot),
            Value.cast(window.offset).eq(run.offset),
            Value.cast(window.turn).eq(turn),
            entry_bytes.eq(~lanes_below(run.place, lanes) & lanes_below(run.end, lanes)),
        ]
        for number in range(1, self.LATENCY):
            before, entry_bytes = entry_bytes, Signal(lanes, name=f"entry_bytes{number}")
            m.d.sync += entry_bytes.eq(before)
        m.d.sync += self.bytes.eq(entry_bytes)

        # -- its data -------------------------------------------------------------------------------------------------
        for lane in range(lanes):
            m.d.comb += window.beat[lane].eq(Cat(self.beat[lane], self.present[lane])[:self.lane_bits])
        for number in range(config.write_lanes):
            for lane in range(lanes):
                m.d.comb += self.data.word_select(number * lanes + lane, 8).eq(window.output[number][lane][:8])
            if config.binary_rows:
                present = [window.output[number][lane][8] & self.bytes[lane] for lane in range(lanes)]
                m.d.comb += self.zero[number].eq(Cat(
                    ~Cat(bit for lane, bit in enumerate(present) if half_of(lane, lanes) == half).any()
                    for half in range(2)))
        return m

    def _keep_room(self, m: Module, *, behind: Value, beyond: Value, load: Value, waits: Value) -> None:
        """``room`` of the next cycle: unless a run ``waits`` then, and all slots from the one it begins in are full.

        ``beyond``: beats in the window after that one; at SLOTS - 1 it is full. A run that is loaded has one less than
        ``behind``. What enters and what is loaded comes late and only chooses.
        """
        last = ByteWindow.SLOTS - 1

        def at(value: Value, slot: int) -> Value:
            return ~value[-1] & (value[:last.bit_length()] == slot)

        one_less = ~behind[-1] & (behind[:last.bit_length()] == 0) & (behind != 0)
        full = Mux(load, Mux(self.enter, at(behind, last), one_less),
                   Mux(self.enter, at(beyond, last - 1), at(beyond, last)))
        m.d.sync += self.room.eq(~(waits & full))
