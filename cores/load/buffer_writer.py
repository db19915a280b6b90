"""Buffer writer: the delivering half of the load engine."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out, connect, flipped

from ..arch.instruction_layout import INDEX_BITS
from ..arch.isa import Queue
from ..arch.registers import STATE_CODES
from ..buffers.input_buffer import BufferWrite, kept_port
from ..config import NpuConfig, part_of
from ..control.engine_port import EnginePort, connect_shared
from ..lib.component import Component
from ..timing.buffers import write_latency
from .box_tiles import BoxTiles
from .entry_placer import EntryPlacer
from .load_context import LoadContext
from .load_dispatch import LoadDispatch
from .load_path import path_of
from .padded_walk import PaddedWalk
from .turn.turned_boxes import TurnedBoxes
from .winograd.tile_boxes import TileBoxes

__all__ = ["BufferWriter"]

_STATE = STATE_CODES["load"]


class BufferWriter(Component):
    """Take the load queue's data in order and put it where it belongs, a beat a cycle.

    `PaddedWalk` goes through the pixels of a load ahead of the data; `LoadDispatch` begins it when the one before it
    has ended. Then its pixels meet their data. Those of LOAD_WGT and LOAD_SIDE are passed on to their rings. Those of
    LOAD_ACT are padded by the machine's `LoadPath`, placed by `EntryPlacer` and written by `BufferPort`, but for those
    that become something else (`BoxTiles`).

    Beats of the store engine (``kept``, with ``local_store``) go first: no entry of a LOAD_ACT sets out in their cycle,
    and no tile's is written in the cycle in which they are.
    """

    #: Cycles from an entry's setting out until it is written; the store engine's own entries count on it.
    latency = staticmethod(write_latency)

    def __init__(self, config: NpuConfig):
        self.config = config
        self.path = path_of(config)(config)
        tiles = part_of(config, BoxTiles, {"winograd": TileBoxes})
        self.tiles = part_of(config, tiles, {"turn": TurnedBoxes})(config)
        super().__init__({
            # Stores, errors and halting are the requester's business.
            **EnginePort(Queue.LOAD, without=("queue", "store_level", "store_take", "error", "halt")).members,
            "queue": In(stream.Signature(LoadContext)),  # instructions whose data has been asked for
            **self.path.outer,
            "input": In(stream.Signature(config.beat_bits)),  # that data
            "write": Out(BufferWrite(config)),  # entries for the input buffer
            **kept_port(config, In),            # beats of local STOREs, which go first
            "weights": Out(stream.Signature(config.beat_bits)),  # to the weight ring
            "side": Out(stream.Signature(config.beat_bits)),  # to the side ring
            "working": Out(1),                  # ``state`` is busy, whatever it says
            "resting": Out(1),                  # ``state`` is idle
            "overrun": Out(1),                  # an entry outside the input buffer would be written
            "overrun_index": Out(INDEX_BITS),   # by this load
            "input_index": Out(INDEX_BITS),     # load of the beat that ``input`` had a cycle ago
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.dispatch = dispatch = LoadDispatch(config)
        m.submodules.path = path = self.path
        m.submodules.walk = walk = PaddedWalk(left_bits=len(path.left))
        m.submodules.placer = placer = EntryPlacer(config)
        # Entries are placed a cycle after their setting out.
        m.submodules.port = port = self.tiles.port(config, latency=path.LATENCY - 1)
        assert path.LATENCY == self.latency(config)

        # -- instructions -------------------------------------------------------------------------------------------
        connect_shared(m, self, dispatch, "queue", "compute_level", "compute_take")
        active, to_path, to_tiles = dispatch.active, dispatch.to_path, dispatch.to_tiles
        entry = self.queue.payload.entry
        box, path_idle = path.box(dispatch, self.input_index), path.is_idle()
        tiles = self.tiles
        tiles.add(m)
        m.d.comb += [
            dispatch.settled.eq(path.settled),
            dispatch.tiled.eq(tiles.tiled),
            dispatch.tiles_idle.eq(tiles.idle),
            dispatch.drained.eq(path.is_drained()),
            dispatch.width.eq(path.width),
            path.setting.eq(dispatch.setting),
            Value.cast(path.word).eq(entry.word),
            path.extent.eq(self.queue.payload.extent),
            *[unit.geometry.eq(dispatch.geometry) for unit in (path, placer)],
            # While the instruction leaves the queue. The last entry of the box before it is placed in that cycle, its
            # first one after it.
            placer.start.eq(box.begin),
            placer.base.eq(box.base),
            walk.left.eq(path.left),
            walk.cols.eq(dispatch.geometry.cols),
        ]
        for name in path.outer:
            connect(m, flipped(getattr(self, name)), getattr(path, name))
        path.take_boxes(m, dispatch, walk, entry=entry, tiled=tiles.tiled)

        # -- a beat or a pixel of padding -----------------------------------------------------------------------------
        # A pixel takes a step where its sink is ready and its data, if it is data, is there.
        pixel, step = walk.pixels.payload, Signal()
        for name in ("weights", "side"):
            ring, chosen = getattr(self, name), getattr(dispatch, f"to_{name}")
            m.d.comb += [ring.valid.eq(chosen & walk.pixels.valid & self.input.valid),
                         ring.payload.eq(self.input.payload)]
        sink_ready = ((dispatch.to_weights & self.weights.ready) | (dispatch.to_side & tiles.side_ready(self))
                      | (to_tiles & tiles.ready) | (to_path & path.room))
        there = ~pixel.is_data | self.input.valid
        m.d.comb += [
            step.eq(walk.pixels.valid & sink_ready & there),
            walk.pixels.ready.eq(sink_ready & there),
            self.input.ready.eq(walk.pixels.valid & pixel.is_data & sink_ready),
            # Not by way of ``step``: what enters the path does not wait for what the other sinks say.
            path.enter.valid.eq(to_path & path.room & walk.pixels.valid & there),
            path.enter.beat.eq(self.input.payload),
            *[path.enter[name].eq(pixel[name]) for name in ("is_data", "row_end", "block_end")],
            dispatch.finish.eq(step & pixel.end),
        ]

        # -- entries --------------------------------------------------------------------------------------------------
        # A token posted with the last entry is seen when that can be read.
        posted = Signal()
        m.d.sync += [posted.eq(dispatch.finish & dispatch.post & ~to_tiles & ~(to_path if path.POSTS else 0)),
                     self.input_index.eq(dispatch.index)]
        m.d.comb += [
            placer.pixels.eq(path.placed),
            self.overrun.eq(placer.overrun),
            self.overrun_index.eq(box.load),
            port.entry.enable.eq(placer.enable),
            port.entry.address.eq(placer.entry),
            port.entry.post.eq(posted | box.post),
            port.value.eq(path.value),
            self.post_compute.eq(port.post_compute),
        ]
        connect(m, port.write, flipped(self.write))
        kept = Const(0)
        if config.local_store:
            kept, late = self.kept.enable.any(), Signal.like(self.kept)
            taken = Signal()
            m.d.comb += path.kept.eq(self.kept)
            m.d.sync += [taken.eq(kept), late.eq(self.kept)]
            with m.If(taken):
                m.d.comb += [port.entry.enable.eq(late.enable), port.entry.address.eq(late.address)]

        # -- report ---------------------------------------------------------------------------------------------------
        queue = self.queue
        m.d.comb += [
            self.idle.eq(~active & ~queue.valid & ~port.busy & path_idle),
            # Without a further instruction it is the last one whose beats are still on their way.
            self.index.eq(Mux(active | ~queue.valid, dispatch.index, entry.index)),
        ]

        tiles.connect(m, writer=self, port=port, dispatch=dispatch, path=path, walk=walk, there=there)

        # -- state ----------------------------------------------------------------------------------------------------
        working, lacking = step | tiles.valid, queue.valid & dispatch.waits_compute
        if path.WORKS_WHEN_FULL:
            working = working | (to_path & there)
        m.d.comb += [self.working.eq(working), self.resting.eq(~active & tiles.idle & path_idle & ~queue.valid)]
        with m.If(active & ~self.input.valid):
            m.d.comb += self.state.eq(_STATE["wait_bus"])
        with m.Elif((to_path | to_tiles) & kept):
            m.d.comb += self.state.eq(_STATE["wait_store"])
        with m.Elif(active):
            m.d.comb += self.state.eq(_STATE["wait_ring"])
        # Between two rows' entries, or the last ones of a box; one that lacks tokens has been announced to the path.
        with m.Elif(~tiles.idle | (~path_idle & ~lacking)):
            m.d.comb += self.state.eq(_STATE["busy"])
        with m.Elif(lacking):
            m.d.comb += self.state.eq(_STATE["wait_compute"])
        with m.Elif(queue.valid):
            m.d.comb += self.state.eq(_STATE["setup"])
        return m
