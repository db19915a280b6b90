"""Load dispatch: the load queue's instructions, one by one, to what delivers their data."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from ..arch.instruction_layout import instruction_layout, is_operation, queue_layout
from ..arch.isa import EntryForm, Opcode, Queue
from ..arch.isa_features import is_supported
from ..config import NpuConfig
from ..control.engine_port import EnginePort, lacks
from ..lib.component import Component
from ..timing.load import LoadDispatchTiming
from .load_context import LoadContext
from .padded_walk import Box

__all__ = ["LoadDispatch", "Setting"]

#: Which operation that sets something is taken in this cycle; none is 0.
Setting = data.StructLayout({op.name.lower(): 1 for op in (Opcode.LOAD_SET, Opcode.LOAD_GATHER, Opcode.LOAD_WINOGRAD)})


class LoadDispatch(LoadDispatchTiming, Component):
    """Take the load queue's next instruction when the load at hand ends, and say what it begins.

    A load's box goes to the walk before that, as soon as the instruction is seen and what the set operations in front
    of it make is there: so its pixels are known when it begins. It waits for its compute token, and a LOAD_ACT for
    tiles that are still being made. It is ``active`` until ``finish``, on its way to one of four places. Operations
    that set something wait until no load is, and until all entries are ``drained``; so do loads that post a token but
    bring none, as tokens are in order.

    All that an instruction waits for but the load at hand is looked at `LOOK` cycles before. A load leaves the queue
    `LEAVE` cycles after its ``start``, and in that cycle its token leaves the counter. ``index`` and ``post`` are its
    own from then on.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        act = instruction_layout(Opcode.LOAD_ACT)
        super().__init__({
            **EnginePort(Queue.LOAD, without=(
                "queue", "store_level", "store_take", "post_compute", "state", "error", "idle", "halt")).members,
            "queue": In(stream.Signature(LoadContext)),  # instructions, in order
            "waits_compute": Out(1),               # the next load lacks its compute token
            "settled": In(1),                      # what set operations make is there
            "tiled": In(1),                        # boxes become tiles
            "tiles_idle": In(1),                   # no tiles are being made
            "drained": In(1),                      # no entries are waiting for their place
            "width": In(Box.members["width"]),     # pixels of a box's row, padding included
            "boxes": Out(stream.Signature(Box)),   # of the next load, ahead of it
            "setting": Out(Setting),               # an instruction that sets something is taken
            "start": Out(1),                       # a load is taken
            "box_begins": Out(1),                  # a LOAD_ACT was, in the cycle before
            "geometry": Out(instruction_layout(Opcode.LOAD_SET)),  # the latest LOAD_SET
            "base": Out(act.members["buf_base"]),  # first entry of the LOAD_ACT that begins
            "finish": In(1),                       # the load's last beat
            "active": Out(1),                      # a load is in hand
            "to_weights": Out(1),                  # its beats go to the weight ring
            "to_side": Out(1),                     # its beats go to the side ring
            "to_path": Out(1),                     # its pixels go to the input buffer
            "to_tiles": Out(1),                    # its pixels become tiles
            "post": Out(1),                        # it posts a token
        })

    def elaborate(self, platform):
        m = Module()
        entry, box = self.queue.payload.entry, self.boxes.payload
        word = data.View(queue_layout(Queue.LOAD), entry.word)
        act, wgt, side = word.load_act, word.load_wgt, word.load_side
        kind = self.queue.payload.kind
        is_box, is_weights, is_side = kind.load_act, kind.load_wgt, kind.load_side
        is_load = kind.as_value().any()
        walked = Signal()       # the next load's box has gone to the walk
        taken = Signal()        # a load was taken in the cycle before and leaves the queue
        wanted, was_box = Signal(), Signal()    # a cycle ago the instruction at the head wanted a token, was a LOAD_ACT
        index, post = Signal.like(self.index, name="last_index"), Signal(name="last_post")
        # All but the load at hand allows the next instruction.
        load_ready, may_start = Signal(), Signal()      # as it was a cycle ago; if that one has not begun
        set_ready = Signal()
        take_set = Signal()
        m.d.comb += [
            # A token that is taken leaves its counter a cycle later.
            self.waits_compute.eq(lacks(self.compute_level, act.wait_compute) | (act.wait_compute & self.compute_take)),
            may_start.eq(load_ready & ~taken),
            self.start.eq(may_start & (~self.active | self.finish)),
            take_set.eq(set_ready & ~self.active),
            self.queue.ready.eq(taken | take_set),
            # While a load leaves the queue, what is noted of it is still there: little waits for the start itself.
            self.box_begins.eq(taken & was_box),
            self.compute_take.eq(taken & wanted),
            self.base.eq(act.buf_base),
            self.index.eq(Mux(taken, entry.index, index)),
            self.post.eq(Mux(taken, act.post_compute, post)),

            self.boxes.valid.eq(self.queue.valid & ~taken & is_load & self.settled & ~walked),
            box.blocks.eq(Mux(is_box, act.blocks, 1)),
            box.pad_top.eq(act.pad_top),
            box.rows.eq(act.rows),
            box.height.eq(self.queue.payload.extent),
            box.width.eq(Mux(is_box, self.width, Mux(is_weights, wgt.beats, side.cols))),
            box.ring.eq(~is_box),
        ]
        m.d.sync += [
            taken.eq(self.start),
            load_ready.eq(walked & ~taken & ~self.waits_compute
                          & Mux(is_box, self.tiles_idle, self.drained | ~act.post_compute)),
            set_ready.eq(self.queue.valid & ~taken & ~is_load & ~take_set & self.settled & self.drained),
            wanted.eq(act.wait_compute),
            was_box.eq(is_box),
        ]
        with m.If(self.boxes.valid & self.boxes.ready):
            m.d.sync += walked.eq(1)
        # That a load ends comes late and only decides whether what follows it moves in.
        with m.If(~self.active | self.finish):
            m.d.sync += [
                self.active.eq(may_start),
                self.to_weights.eq(may_start & is_weights),
                self.to_side.eq(may_start & is_side),
                self.to_path.eq(may_start & is_box & ~self.tiled),
                self.to_tiles.eq(may_start & is_box & self.tiled),
            ]
        with m.If(taken):
            m.d.sync += [walked.eq(0), post.eq(act.post_compute)]
        with m.If(taken | take_set):
            m.d.sync += index.eq(entry.index)
        with m.If(take_set):
            with m.If(is_operation(act, Opcode.LOAD_SET, self.config)):
                m.d.comb += self.setting.load_set.eq(1)
                m.d.sync += self.geometry.eq(word.load_set)
            for opcode in (Opcode.LOAD_GATHER, Opcode.LOAD_WINOGRAD):
                if is_supported(opcode, self.config):
                    with m.If(is_operation(act, opcode, self.config)):
                        m.d.comb += self.setting[opcode.name.lower()].eq(1)
                        m.d.sync += self.geometry.form.eq(EntryForm.BYTES)
        return m
