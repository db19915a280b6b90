"""Run gatherer: the beats of rows become entries of the input buffer."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...arch.isa import LAYOUTS, Opcode
from ...config import NpuConfig
from ...lib.bits import lanes_below
from ..phase_counter import count_down
from .byte_window import ByteWindow

__all__ = ["RunGatherer", "RunLayout"]

_BITS = {field.name: field.bits for field in LAYOUTS[Opcode.LOAD_GATHER]}


def RunLayout(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """The runs of a row: ``outputs`` of them, ``step`` bytes apart, the first at ``offset`` behind ``skip`` beats.

    Byte ``i`` of a run goes to byte ``place + i`` of an entry, as far as there is such a byte. ``length`` is at most a
    beat. ``pairs``: ``write_lanes`` runs in a cycle; ``step`` is at most a beat then.
    """
    return data.StructLayout({
        "outputs": unsigned(_BITS["outputs"] + 1),
        "length": range(config.beat_bytes + 1),
        "step": unsigned(_BITS["step"]),
        "offset": range(config.beat_bytes),
        "skip": unsigned(2),
        "place": range(config.beat_bytes),
        "pairs": unsigned(1),
    })


class RunGatherer(wiring.Component):
    """Cut runs of bytes out of rows of beats, as one or ``write_lanes`` entries of neighbouring banks a cycle.

    ``start`` begins ``blocks`` times ``rows`` rows of runs as ``runs`` says, from block to block ``length`` further
    along in the entries. Beats come with ``enter``, when there is ``room``; ``enter_last`` is a row's last, and every
    run ends before or in it. ``emit`` is a run or a pair, the last of a row with ``row_end`` and of a block with
    ``block_end``; its data, ``bytes`` and ``zero`` follow `LATENCY` cycles behind it. ``wrap``: the next block begins
    another entry. ``hold`` lets none set out. ``finish`` comes with the last beat's leaving, not before the last run.

    Rate: a beat in and a pair out in every cycle; from a row to the next no cycle is lost. Golden model:
    ``sim.gather.gather_row``.
    """

    LATENCY = 2

    def __init__(self, config: NpuConfig):
        self.config = config
        self.lane_bits = 9 if config.binary_rows else 8
        super().__init__({
            "start": In(1),                    # begin a box
            "runs": In(RunLayout(config)),     # its rows' runs
            "blocks": In(10),                  # of the box
            "rows": In(11),                    # of a block, padding included
            "enter": In(1),                    # a beat comes, if there is ``room``
            "enter_last": In(1),               # it is its row's last
            "beat": In(data.ArrayLayout(unsigned(8), config.beat_bytes)),  # its bytes
            "present": In(config.beat_bytes),  # those that do not count as padding
            "room": Out(1),                    # for a beat
            "hold": In(1),                     # let no run set out
            "emit": Out(config.write_lanes),   # a run, or several of neighbouring banks, sets out
            "row_end": Out(1),                 # the last of its row
            "block_end": Out(1),               # the last of its block
            "wrap": Out(1),                    # the next block begins another entry
            "finish": Out(1),                  # the box's last beat and run have left
            "data": Out(config.write_lanes * config.beat_bits),  # of what set out `LATENCY` cycles ago
            "bytes": Out(config.beat_bytes),   # of its entries that it has
            "zero": Out(config.write_lanes),   # its entries that are padding as a whole
        })

    def elaborate(self, platform):
        m = Module()
        config, lanes, runs = self.config, self.config.beat_bytes, self.config.write_lanes
        shift = (lanes - 1).bit_length()
        slots = ByteWindow.SLOTS
        m.submodules.window = window = ByteWindow(lanes=lanes, runs=runs, lane_bits=self.lane_bits)

        setting = Signal(RunLayout(config))
        running, draining, ending = Signal(), Signal(), Signal()
        # Counts of what is left behind the runs at hand, their row and their block, less one: see `count_down`.
        outputs_left = Signal(len(setting.outputs) + 2)
        rows = Signal.like(self.rows)
        rows_left, blocks_left = Signal(len(rows) + 1), Signal(len(self.blocks) + 1)
        offset, place = Signal(range(lanes)), Signal(range(lanes))
        slot, enter_slot = Signal(range(slots)), Signal(range(slots))
        # Beats in the window from the present run's first on; below zero, as many must pass before it.
        fill = Signal(signed(6))
        last = Signal(slots)

        # -- a run, or a pair ---------------------------------------------------------------------------------------
        pairs = setting.pairs if runs > 1 else Const(0)
        alone = Signal()            # the last of an odd row
        row_end = outputs_left[-1]
        m.d.comb += alone.eq(~pairs | (row_end & ~outputs_left[0]))
        # Both are 0 to 2 beats further, as no run, nor a pair's step, is longer than a beat.
        reach = Signal(range(3 * lanes))
        step = setting.step[:shift + 1]
        m.d.comb += reach.eq(offset + setting.length - 1 + Mux(alone, 0, step))
        go = Signal()
        m.d.comb += go.eq(running & ~draining & ~self.hold & (fill > reach[shift:]))
        advance = Signal(8)
        m.d.comb += advance.eq(offset + Mux(pairs, setting.step << 1, setting.step))

        m.d.comb += window.slot[0].eq(slot)
        m.d.comb += window.offset[0].eq(offset)
        second = Signal(range(2 * lanes))
        m.d.comb += second.eq(offset + Mux(pairs, step, 0))
        for run in range(1, runs):
            m.d.comb += [window.slot[run].eq(slot + second[shift:]), window.offset[run].eq(second)]
        for run in range(runs):
            m.d.comb += window.turn[run].eq(window.offset[run] - place)

        # -- the end of a row ----------------------------------------------------------------------------------------
        # Its last beat may be in the window, enter now, or be still to come.
        inside = Signal(slots)
        m.d.comb += inside.eq(Cat(last.bit_select((slot + number)[:2], 1) & (fill > number) for number in range(slots)))
        enters_last = self.enter & self.enter_last
        leave = Signal(range(slots + 1))        # beats up to the last, if it is inside
        for number in reversed(range(slots)):
            with m.If(inside[number]):
                m.d.comb += leave.eq(number + 1)
        passed = Signal()
        m.d.comb += passed.eq(Mux(draining, enters_last, go & row_end & (inside.any() | enters_last)))
        block_end, box_end = rows_left[-1], rows_left[-1] & blocks_left[-1]
        m.d.comb += self.finish.eq(passed & Mux(draining, ending, box_end))

        # -- state -----------------------------------------------------------------------------------------------------
        next_slot = Signal(range(slots))
        m.d.comb += next_slot.eq(enter_slot + self.enter)
        m.d.sync += [enter_slot.eq(next_slot), fill.eq(fill + self.enter)]
        with m.If(self.enter):
            m.d.sync += last.bit_select(enter_slot, 1).eq(self.enter_last)
        with m.If(go):
            with m.If(row_end):
                m.d.sync += [offset.eq(setting.offset), rows_left.eq(count_down(block_end, rows_left, rows, first=2))]
                with m.If(block_end):
                    m.d.sync += [blocks_left.eq(blocks_left - 1), place.eq(place + setting.length)]
                m.d.sync += [draining.eq(~passed), ending.eq(box_end)]
                with m.If(inside.any()):
                    m.d.sync += [slot.eq(slot + leave + setting.skip),
                                 fill.eq(fill + self.enter - leave - setting.skip)]
                with m.Else():
                    m.d.sync += [slot.eq(next_slot + setting.skip), fill.eq(-setting.skip)]
            with m.Else():
                m.d.sync += [offset.eq(advance),
                             slot.eq(slot + advance[shift:]), fill.eq(fill + self.enter - advance[shift:])]
        # Less one, or two of a pair; a row begins a run, or two, further.
        with m.If(go):
            m.d.sync += outputs_left.eq(
                Mux(row_end, setting.outputs, outputs_left) - Mux(row_end, Mux(pairs, 3, 2), Mux(pairs, 2, 1)))
        with m.If(draining):
            m.d.sync += [draining.eq(~passed), slot.eq(next_slot + setting.skip),
                         fill.eq(-setting.skip)]
        with m.If(self.finish):
            m.d.sync += running.eq(0)
        with m.If(self.start):
            m.d.sync += [
                setting.eq(self.runs), running.eq(1), draining.eq(0), rows.eq(self.rows), rows_left.eq(self.rows - 2),
                blocks_left.eq(self.blocks - 2), offset.eq(self.runs.offset), place.eq(self.runs.place),
                enter_slot.eq(0), slot.eq(self.runs.skip), fill.eq(-self.runs.skip),
                outputs_left.eq(self.runs.outputs - 2 - (self.runs.pairs if runs > 1 else 0)),
            ]

        # -- ports -----------------------------------------------------------------------------------------------------
        entry_bytes = Signal(lanes)
        further = Signal(range(2 * lanes))
        m.d.comb += [
            further.eq(place + setting.length),
            self.wrap.eq(further >= lanes),
            self.room.eq(running & (fill < slots)),
            self.emit.eq(Mux(go, Mux(alone, 1, (1 << runs) - 1), 0)),
            self.row_end.eq(row_end),
            self.block_end.eq(block_end),
            window.enter.eq(self.enter),
            window.enter_slot.eq(enter_slot),
        ]
        m.d.comb += entry_bytes.eq(~lanes_below(place, lanes) & lanes_below(further, lanes))
        delayed = Signal(lanes)
        m.d.sync += [delayed.eq(entry_bytes), self.bytes.eq(delayed)]
        for lane in range(lanes):
            m.d.comb += window.beat[lane].eq(Cat(self.beat[lane], self.present[lane])[:self.lane_bits])
        for run in range(runs):
            for lane in range(lanes):
                at = 8 * (run * lanes + lane)
                m.d.comb += self.data[at:at + 8].eq(window.output[run][lane][:8])
            if config.binary_rows:
                present = Cat(window.output[run][lane][8] for lane in range(lanes))
                m.d.comb += self.zero[run].eq(~(present & self.bytes).any())
        return m
