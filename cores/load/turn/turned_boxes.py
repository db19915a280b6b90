"""Boxes that become weights, as the load engine has them."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data

from ...arch.instruction_layout import instruction_layout, is_operation, queue_layout
from ...arch.isa import Opcode, Queue
from ...config import NpuConfig, part_of
from ...lib.component import record
from ..box_tiles import BoxTiles
from ..load_dispatch import LoadDispatch
from ..load_path import LoadPath
from ..padded_walk import PaddedWalk
from ..winograd.tile_boxes import TileBoxes
from .corner_turn import CornerTurn, TurnLayout
from .turned_bias import TurnedBias

__all__ = ["TurnedBoxes"]


class TurnedBoxes(BoxTiles):
    """Those after a LOAD_TURN go through a `CornerTurn` to the weight ring, and parameters that want their sums through
    a `TurnedBias` to the side ring. Nothing but further boxes begins while either is at work. Other boxes are what they
    are without a corner turn.
    """

    def __init__(self, config: NpuConfig):
        super().__init__(config)
        self._turn, self._bias = CornerTurn(config), TurnedBias(config)
        self._turned, self._to_bias = Signal(name="turned"), Signal(name="to_bias")
        self._others = part_of(config, BoxTiles, {"winograd": TileBoxes})(config)
        self.tiled = self._turned | self._others.tiled
        self.ready = Mux(self._turned, self._turn.pixels.ready, self._others.ready)
        self.valid, self.idle, self.port = self._others.valid, self._others.idle, self._others.port

    def add(self, m: Module) -> None:
        self._others.add(m)
        m.submodules.turn, m.submodules.turned_bias = self._turn, self._bias

    def side_ready(self, writer: Any) -> Value:
        return Mux(self._to_bias, self._bias.beats.ready, writer.side.ready)

    def connect(self, m: Module, *, writer: Any, port: Any, dispatch: LoadDispatch, path: LoadPath, walk: PaddedWalk,
                there: Value) -> None:
        self._others.connect(m, writer=writer, port=port, dispatch=dispatch, path=path, walk=walk,
                             there=there & ~self._turned)
        turn, bias, pixel, queue = self._turn, self._bias, walk.pixels.payload, writer.queue
        word = data.View(queue_layout(Queue.LOAD), queue.payload.entry.word)
        to_turn = dispatch.to_tiles & self._turned
        layout, side = record(TurnLayout), record(instruction_layout(Opcode.LOAD_SIDE))
        with m.If(dispatch.setting.load_set):
            m.d.sync += self._turned.eq(0)
        with m.If(queue.valid & queue.ready & is_operation(word.load_turn, Opcode.LOAD_TURN, self.config)):
            m.d.sync += [self._turned.eq(1), *[layout[name].eq(word.load_turn[name]) for name in TurnLayout.members]]
        with m.If(dispatch.start):
            m.d.sync += [self._to_bias.eq(queue.payload.kind.load_side & word.load_side.zero_point.any()),
                         side.eq(word.load_side), bias.begin.eq(1)]
        with m.Else():
            m.d.sync += bias.begin.eq(0)
        m.d.comb += [
            turn.layout.eq(layout),
            turn.pixels.valid.eq(walk.pixels.valid & to_turn & there),
            turn.pixels.payload.data.eq(writer.input.payload),
            *[turn.pixels.payload[name].eq(pixel[name]) for name in ("row_end", "block_end", "end")],
            turn.sum_bank.eq(side.bank),
            turn.sum_lane.eq(bias.lane),
            turn.beats.ready.eq(writer.weights.ready),
            bias.sum.eq(turn.sum),
            bias.group.eq(side.group),
            bias.zero_point.eq(side.zero_point),
            bias.beats.valid.eq(dispatch.to_side & self._to_bias & walk.pixels.valid & writer.input.valid),
            bias.beats.payload.eq(writer.input.payload),
            bias.output.ready.eq(writer.side.ready),
        ]
        with m.If(turn.beats.valid):
            m.d.comb += [writer.weights.valid.eq(1), writer.weights.payload.eq(turn.beats.payload)]
        with m.If(self._to_bias | bias.output.valid):
            m.d.comb += [writer.side.valid.eq(bias.output.valid), writer.side.payload.eq(bias.output.payload)]
        working = Signal(name="turns")
        m.d.comb += working.eq(to_turn | turn.busy | (dispatch.to_side & self._to_bias) | bias.busy)
        with m.If(working & ~queue.payload.kind.load_act):
            m.d.comb += dispatch.settled.eq(0)
        with m.If(working):
            m.d.comb += writer.idle.eq(0)
