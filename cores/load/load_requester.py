"""Load requester: the asking half of the load engine."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from ..arch.axi import MAX_BURST
from ..arch.error_codes import ErrorCode
from ..arch.instruction_layout import field_shape, is_operation, queue_layout
from ..arch.isa import Opcode, Queue
from ..arch.registers import REGION_BITS
from ..bus.axi import read_request_layout
from ..config import NpuConfig
from ..control.engine_port import EnginePort, lacks
from ..lib.component import Component, record
from ..timing.load import LoadRequesterTiming
from .load_context import ExtentParts, LoadContext, LoadKind, extent_of, extent_parts
from .phase_counter import count_down

__all__ = ["LoadRequester"]


class LoadRequester(LoadRequesterTiming, Component):
    """Turn the load queue's instructions into requests, as far ahead as there is room for data.

    An instruction waits for its ``stores`` tokens and goes on to the delivering half as a context; then its requests
    follow: for block, row, bursts of up to 256 beats. Room for a burst is reserved before it is asked for. A request
    stands until it is taken, also when the machine halts.

    Every step but one is a cycle after what it depends on: an instruction is looked at for a cycle before it is
    taken, a burst is compared with the room that there is and with the region's end in the cycle before it goes out.
    Raises ILLEGAL for a LOAD_ACT without a LOAD_SET in front of it, READ_RANGE for a row that is not inside the region.
    """

    def __init__(self, config: NpuConfig, *, depth: int):
        self.config = config
        self.depth = depth
        super().__init__({
            **EnginePort(Queue.LOAD, without=(
                "compute_level", "compute_take", "post_compute", "state", "idle")).members,
            "context": Out(LoadContext),  # an instruction whose requests follow
            "hand_on": Out(1),            # it is handed on to the delivering half
            "room": In(1),                # for it, until the next one is handed on
            "request": Out(stream.Signature(read_request_layout(config))),  # reads for the bus
            "data_address": In(config.address_width),  # bus address of the data region
            "data_beats": In(REGION_BITS),  # its size
            "popped": In(1),                # a beat that was asked for has left the data FIFO
            "running": Out(1),              # an instruction is in hand
            "waits_store": Out(1),          # a cycle ago the next one lacked ``stores`` tokens
        })

    def elaborate(self, platform):
        m = Module()
        word = data.View(queue_layout(Queue.LOAD), self.queue.payload.word)
        act, wgt, side = word.load_act, word.load_wgt, word.load_side
        running, halted, failed = self.running, Signal(), Signal()
        m.d.sync += halted.eq(self.halt)

        # -- instructions -------------------------------------------------------------------------------------------
        geometry = record(data.StructLayout(
            {name: field_shape(Opcode.LOAD_SET, name) for name in ("cols", "row_pitch", "block_pitch")}))
        parts, kind = record(ExtentParts), record(LoadKind)
        startable, accept = Signal(), Signal()
        is_set, is_box, is_weights, is_side = (is_operation(act, opcode, self.config) for opcode in (
            Opcode.LOAD_SET, Opcode.LOAD_ACT, Opcode.LOAD_WGT, Opcode.LOAD_SIDE))
        lacks_stores, asks, was_set = Signal(), Signal(), Signal()
        next_row = Signal.like(wgt.beats)       # beats of its rows, less one
        m.d.comb += [
            lacks_stores.eq(lacks(self.store_level, act.stores)),
            accept.eq(startable & ~running),
            self.queue.ready.eq(accept),
            self.store_take.eq(Mux(accept, act.stores, 0)),
            self.hand_on.eq(accept),
            self.context.entry.eq(self.queue.payload),
            self.context.kind.eq(kind),
            self.context.extent.eq(extent_of(parts)),
        ]
        m.d.sync += [
            self.waits_store.eq(self.queue.valid & self.room & ~running & lacks_stores),
            startable.eq(self.queue.valid & ~accept & self.room & ~lacks_stores & ~halted),
            asks.eq(is_weights | is_side | (is_box & (act.rows != 0) & (geometry.cols != 0))),
            kind.eq(Cat(is_box, is_weights, is_side)),
            was_set.eq(is_set),
            parts.eq(extent_parts(m, self.queue.payload.word, self.config)),
            next_row.eq(Mux(is_box, geometry.cols, Mux(is_weights, wgt.beats, side.cols)) - 1),
        ]
        with m.If(accept & was_set):
            m.d.sync += [geometry[name].eq(word.load_set[name]) for name in ("cols", "row_pitch", "block_pitch")]

        # -- the burst at hand ----------------------------------------------------------------------------------------
        # A bit more than the region's size: a row is checked before the next one is computed, so nothing wraps.
        block_offset, row_offset, offset, row_end = (Signal(REGION_BITS + 1, name=name) for name in (
            "block_offset", "row_offset", "offset", "row_end"))
        row_pitch = Signal.like(geometry.row_pitch)
        burst_bits = MAX_BURST.bit_length() - 1
        row = Signal.like(wgt.beats)            # beats of a row, less one
        whole = Signal(len(row) - burst_bits + 1)   # bursts of the row after this one, less one; see `count_down`
        rows = Signal.like(act.rows)
        rows_left, blocks_left = Signal(len(rows) + 1), Signal(len(act.blocks) + 1)     # after this one, less one
        last_burst, last_row, last_block = whole[-1], rows_left[-1], blocks_left[-1]
        go = Signal()
        # Where the next burst, row and block begin: added while a burst stands, a cycle before it goes out.
        next_burst, next_row_offset, next_block = (Signal.like(offset, name=name) for name in (
            "next_burst", "next_row_offset", "next_block"))
        m.d.sync += [
            next_burst.eq(offset + MAX_BURST),
            next_row_offset.eq(row_offset + row_pitch),
            next_block.eq(block_offset + geometry.block_pitch),
        ]
        next_begin = Mux(last_row, next_block, next_row_offset)
        # While nothing is in hand all is what the next instruction would begin with: that it is taken comes late and
        # changes little. The offset is the first field of all three operations.
        with m.If(~running | go):
            m.d.sync += offset.eq(Mux(running, Mux(last_burst, next_begin, next_burst), act.offset))
        with m.If(~running | (go & last_burst)):
            m.d.sync += row_offset.eq(Mux(running, next_begin, act.offset))
        with m.If(~running | (go & last_burst & last_row)):
            m.d.sync += block_offset.eq(Mux(running, next_block, act.offset))
        with m.If(accept):
            m.d.sync += [self.index.eq(self.queue.payload.index), running.eq(asks)]
        with m.If(~running):
            m.d.sync += [
                row_pitch.eq(Mux(kind.load_act, geometry.row_pitch, side.row_pitch)),
                row.eq(next_row),
                whole.eq(next_row[burst_bits:] - 1),
                rows.eq(Mux(kind.load_act, act.rows, side.rows)),
                rows_left.eq(Mux(kind.load_wgt, 1, Mux(kind.load_act, act.rows, side.rows)) - 2),
                blocks_left.eq(Mux(kind.load_act, act.blocks, 1) - 2),
            ]
        with m.If(go):
            m.d.sync += whole.eq(count_down(last_burst, whole, row[burst_bits:], first=1))
            with m.If(last_burst):
                m.d.sync += rows_left.eq(count_down(last_row, rows_left, rows, first=2))
                with m.If(last_row):
                    m.d.sync += blocks_left.eq(blocks_left - 1)
                    with m.If(last_block):
                        m.d.sync += running.eq(0)

        # -- its request ----------------------------------------------------------------------------------------------
        spare = Signal(range(self.depth + 1), init=self.depth)     # room for data that is not reserved
        ready, fits, popped, inside, out_of_range = Signal(), Signal(), Signal(), Signal(), Signal()
        rest = row[:burst_bits]
        # Less ``beats`` is plus ~(beats - 1), and the beat that left comes in as the carry: one sum.
        at_hand, reserved = Signal.like(spare), Signal.like(spare)
        m.d.comb += [at_hand.eq(Mux(last_burst, rest, MAX_BURST - 1)), reserved.eq(Mux(go, ~at_hand, 0))]
        m.d.comb += [
            fits.eq(Mux(last_burst, spare > rest, spare >= MAX_BURST)),
            go.eq(ready & ~self.request.valid),
            inside.eq(row_end < self.data_beats),
        ]
        m.d.sync += [
            popped.eq(self.popped),
            spare.eq((Cat(Const(1, 1), spare) + Cat(popped, reserved))[1:]),
            row_end.eq(row_offset + row),
            ready.eq(running & ~go & fits & ~halted & ~failed & ~out_of_range),
        ]
        with m.If(go):
            m.d.sync += [
                self.request.valid.eq(inside),
                self.request.p.length.eq(at_hand),
                self.request.p.address.eq(self.data_address + offset * self.config.beat_bytes),
            ]
        with m.Elif(self.request.ready):
            m.d.sync += self.request.valid.eq(0)

        # -- errors ---------------------------------------------------------------------------------------------------
        # A range's error is told a cycle later than it is found; the next instruction has not taken its place by then.
        no_geometry = accept & is_box & (geometry.cols == 0)
        m.d.sync += [
            out_of_range.eq(go & ~inside),
            self.error.valid.eq(no_geometry | out_of_range),
            self.error.code.eq(Mux(out_of_range, ErrorCode.READ_RANGE, ErrorCode.ILLEGAL)),
            self.error.index.eq(Mux(out_of_range, self.index, self.queue.payload.index)),
        ]
        with m.If(out_of_range):
            m.d.sync += failed.eq(1)
        return m
