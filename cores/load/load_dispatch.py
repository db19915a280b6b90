"""Load dispatch: the load queue's instructions, one by one, to what delivers their data."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..arch.instruction_layout import instruction_layout, queue_layout
from ..arch.isa import Opcode, Queue, is_supported
from ..config import NpuConfig
from ..control.engine_port import EnginePort, lacks
from .padded_walk import Box

__all__ = ["LoadDispatch", "Setting"]

#: Which operation that sets something is taken in this cycle; none is 0.
Setting = data.StructLayout({op.name.lower(): 1 for op in (Opcode.LOAD_SET, Opcode.LOAD_GATHER, Opcode.LOAD_WINOGRAD)})


class LoadDispatch(wiring.Component):
    """Take the load queue's next instruction when the load at hand ends, and say what it begins.

    A load waits for its compute token, for what the set operations in front of it make, and a LOAD_ACT for tiles that
    are still being made. It is ``active`` until ``finish``, on its way to the input buffer unless to one of the rings.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        act = instruction_layout(Opcode.LOAD_ACT)
        super().__init__({
            **EnginePort(Queue.LOAD, without=(
                "store_level", "store_take", "post_compute", "state", "error", "idle", "halt")).members,
            "waits_compute": Out(1),               # the next load lacks its compute token
            "settled": In(1),                      # what set operations make is there
            "tiles_idle": In(1),                   # no tiles are being made
            "setting": Out(Setting),               # an instruction that sets something is taken
            "start": Out(1),                       # a load is taken
            "start_box": Out(1),                   # a LOAD_ACT is
            "geometry": Out(instruction_layout(Opcode.LOAD_SET)),  # the latest LOAD_SET
            "box": Out(Box),                       # of the load that begins
            "base": Out(act.members["buf_base"]),  # first entry of the LOAD_ACT that begins
            "finish": In(1),                       # the load's last beat
            "active": Out(1),                      # a load is in hand
            "to_weights": Out(1),                  # its beats go to the weight ring
            "to_side": Out(1),                     # its beats go to the side ring
            "post": Out(1),                        # it posts a token
        })

    def elaborate(self, platform):
        m = Module()
        word = data.View(queue_layout(Queue.LOAD), self.queue.payload.word)
        act, wgt, side = word.load_act, word.load_wgt, word.load_side
        take = Signal()
        is_box, is_weights = act.opcode == Opcode.LOAD_ACT, act.opcode == Opcode.LOAD_WGT
        m.d.comb += [
            self.waits_compute.eq(lacks(self.compute_level, act.wait_compute)),
            take.eq(self.queue.valid & (~self.active | self.finish) & ~self.waits_compute & self.settled
                         & (self.tiles_idle | ~is_box)),
            self.queue.ready.eq(take),
            self.start_box.eq(take & is_box),
            self.base.eq(act.buf_base),
        ]
        with m.If(is_box):
            m.d.comb += [
                self.box.blocks.eq(act.blocks),
                self.box.pad_top.eq(act.pad_top),
                self.box.rows.eq(act.rows),
                self.box.pad_bottom.eq(act.pad_bottom),
                self.box.cols.eq(self.geometry.cols),
            ]
        with m.Else():
            m.d.comb += [
                self.box.blocks.eq(1),
                self.box.rows.eq(Mux(is_weights, 1, side.rows)),
                self.box.cols.eq(Mux(is_weights, wgt.beats, side.cols)),
            ]
        with m.If(self.finish):
            m.d.sync += self.active.eq(0)
        with m.If(take):
            m.d.comb += self.compute_take.eq(act.wait_compute)
            m.d.sync += [self.index.eq(self.queue.payload.index), self.post.eq(act.post_compute),
                         self.to_weights.eq(0), self.to_side.eq(0)]
            with m.Switch(act.opcode):
                with m.Case(Opcode.LOAD_SET):
                    m.d.comb += self.setting.load_set.eq(1)
                    m.d.sync += self.geometry.eq(word.load_set)
                for opcode in (Opcode.LOAD_GATHER, Opcode.LOAD_WINOGRAD):
                    if is_supported(opcode, self.config):
                        with m.Case(opcode):
                            m.d.comb += self.setting[opcode.name.lower()].eq(1)
                            m.d.sync += self.geometry.sign.eq(0)
                with m.Default():
                    m.d.comb += self.start.eq(1)
                    m.d.sync += [self.active.eq(1), self.to_weights.eq(is_weights),
                                 self.to_side.eq(~is_weights & ~is_box)]
        return m
