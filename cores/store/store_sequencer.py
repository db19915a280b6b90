"""Control of the store engine: instructions, tokens, and when a pixel sets out."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from ..arch.error_codes import ErrorCode
from ..arch.instruction_layout import field_or_zero, instruction_layout, is_kind, is_operation
from ..arch.isa import CHAIN, Opcode, Queue, WordForm, loads
from ..arch.isa_features import is_supported
from ..arch.registers import STATE_CODES
from ..config import NpuConfig
from ..control.engine_port import EnginePort, lacks
from ..lib.component import Component
from ..timing.store import StoreSequencerTiming
from .chain import Chain, take_operation
from .parts import beats_of, order_of, second_stage_of, turns_of, words_of
from .requantizer import PixelIssue
from .store_pixels import StorePixels

__all__ = ["StoreSequencer"]

_STATE = STATE_CODES["store"]


class StoreSequencer(StoreSequencerTiming, Component):
    """Takes the store queue's instructions and issues the pixels of each STORE.

    A pixel is issued when all that it needs is there:

    * the block's channel parameters, and ``room`` after the requantizer;
    * with a second stage its residual, but not with STORE_LEAKY, nor where the block's first pixel has had the residual
      for all of them;
    * with ``pooled`` a beat of the pool unit.

    Of Winograd tiles the words of its sum are read first, one a cycle, and ``issue`` is valid with the last. Between
    blocks there is no gap if the next parameters are there. The set operations wait until the requantizer has
    ``drained``, as it reads ``chain``.

    The word of the next position is read in every cycle, whether a pixel is issued or not. A residual is taken
    `RESIDUAL_CYCLES` after its pixel's first word. So neither the accumulators' enable nor the side ring waits for all
    that a pixel waits for.

    An operation that loads leaves the queue with the last beat that it loads. Its beats are taken from the cycle after
    that in which it could have left.

    The next instruction waits until all runs are taken. A bank that cannot hold the tile is a BUFFER error, and so is a
    local row that begins outside the input buffer. A STORE without STORE_SET and STORE_REQUANT in front of it is
    ILLEGAL. After an error nothing moves until reset. ``state`` is that of the cycle before.
    """

    #: Ports that are those of the engine; its token and error may also be those of a local STORE's writer.
    SHARED = ("queue", "compute_level", "compute_take", "state", "index", "idle", "halt", "read_address")
    def __init__(self, config: NpuConfig):
        self.config = config
        self._loading = [op for op in CHAIN if loads(op) and is_supported(op, config)]
        super().__init__({
            **EnginePort(Queue.STORE, without=("post_load",)).members,
            "geometry": Out(instruction_layout(Opcode.STORE_SET)),  # the latest STORE_SET
            "chain": Out(Chain(config)),        # what is done to results
            "store": Out(instruction_layout(Opcode.STORE)),  # the STORE at hand
            "take_residual": Out(1),            # the pixel's beat of the side ring is taken
            "issue": Out(PixelIssue(config)),  # a pixel sets out
            "read": Out(1),                     # a word of sums is read
            "read_address": Out(range(config.acc_depth)),  # its address
            "drained": In(1),                   # nothing is under way
            "room": In(1),                      # for another beat in the next cycle, if no pixel sets out in this one
            "room_behind": In(1),               # the same if one does
            "side_valid": In(1),                # the side ring has a beat
            **turns_of(config).PORTS,
            "pooled_valid": In(1),              # the pool unit has one
            "pooled_ready": Out(1),             # it is taken if it is there
            "parameters_wanted": Out(1),        # take those of the next block
            "parameters_loaded": In(1),         # they are complete
            **({
                # Of each operation that loads, in their order:
                "load_wanted": Out(len(loading)),  # take what it loads
                "loaded": In(len(loading)),     # it is complete
            } if (loading := self._loading) else {}),
            "runs_start": Out(1),               # begin the STORE's runs
            "runs_idle": In(1),                 # they are all taken
            "runs_failed": In(1),               # one would be outside its region
        })

    def elaborate(self, platform):
        m = Module()
        config, geometry, store = self.config, self.geometry, self.store
        word, chain = self.queue.p.word, self.chain
        add, pooled = chain.adds, store.pooled
        words, results = words_of(config), beats_of(config)
        tiles = is_kind(geometry.words, WordForm.TILES, config)
        blocks_of_bank: Value | int = config.oc_groups
        if config.groups_share:
            shared = [is_kind(geometry.words, form, config) for form in (WordForm.SPREAD, WordForm.ALTERNATE)]
            blocks_of_bank = Mux(Cat(shared).any(), 1, config.oc_groups)
        # A local STORE's token is given when its beats are in the input buffer.
        local = field_or_zero(geometry, Opcode.STORE_SET, "local", config)

        # The state is one of these, each a register as much waits for it, or none of them once something has failed: no
        # STORE is in hand; it has been taken; it waits for its token; its pixels set out.
        resting, begin, waiting, running = (Signal(name=name, init=name == "resting")
                                            for name in ("resting", "begin", "waiting", "running"))
        starts = Signal()   # the token is taken
        go, issue, lacks_parameters, lacks_residual, lacks_pooled = (Signal(name=name) for name in (
            "go", "issue", "lacks_parameters", "lacks_residual", "lacks_pooled"))
        m.submodules.pixels = pixels = StorePixels(config)
        position = pixels.position
        at = position.payload
        m.d.comb += [
            pixels.restart.eq(begin),
            pixels.geometry.eq(geometry),
            pixels.store.eq(store),
            *order_of(config).connect(chain, pixels),
            self.runs_start.eq(starts),
            self.read_address.eq(at.address),
            self.read.eq(running & position.valid & ~pooled),
        ]

        # -- parameters ---------------------------------------------------------------------------------------------
        blocks_to_load = Signal.like(store.blocks, name="blocks_to_load")
        # Those of the block at hand are there, and the STORE has its token; those of the block after it are there.
        block_open, next_there = (Signal(name=name) for name in ("block_open", "next_there"))
        open_next, open_behind = Signal(), Signal()     # the former in the next cycle, unless a pixel sets out; if so
        with m.If(begin):
            m.d.sync += [blocks_to_load.eq(store.blocks), self.parameters_wanted.eq(1)]
        with m.If(self.parameters_loaded):
            m.d.sync += [blocks_to_load.eq(blocks_to_load - 1), self.parameters_wanted.eq(blocks_to_load != 1)]
        m.d.comb += [
            open_behind.eq(~at.block_end | next_there | self.parameters_loaded),
            open_next.eq(Mux(starts, next_there, block_open) | (self.parameters_loaded & (starts | running))),
        ]
        m.d.sync += block_open.eq(Mux(issue, open_behind, open_next))
        with m.If(starts | (issue & at.block_end)):
            m.d.sync += next_there.eq(0)
        with m.Elif(self.parameters_loaded):
            m.d.sync += next_there.eq(~running | block_open)

        # -- turns --------------------------------------------------------------------------------------------------
        turns, stage = turns_of(config), second_stage_of(config, chain)
        turn_comes = turns.begin(m, self, begin=begin, tiles=tiles, words=words, results=results)
        # All but what a pixel is made of is there: parameters, room, its turn.
        able, has_room = Signal(name="able"), Signal(name="has_room")
        m.d.sync += [
            able.eq(Mux(issue, open_behind & self.room_behind, open_next & self.room) & turn_comes),
            has_room.eq(Mux(issue, self.room_behind, self.room)),
        ]

        # -- a pixel, or a word of its sum ----------------------------------------------------------------------------
        first, last = words.ends(m, self.issue, at)
        willing = Signal()      # but for the pool unit
        gives_token = Signal()
        wants_residual = stage.wants_other(m, turns.wants(at), at)
        loads_parameters, last_time = turns.loads(stage, at.block_start, at.block_end)
        m.d.comb += [
            lacks_parameters.eq(~block_open),
            lacks_residual.eq(turns.lacks(self, wants_residual)),
            lacks_pooled.eq(pooled & ~self.pooled_valid),
            willing.eq(position.valid & (~first | (able & ~lacks_residual))),
            go.eq(willing & ~lacks_pooled),
            issue.eq(go & last),
            position.ready.eq(go),
            self.issue.valid.eq(issue),
            self.issue.pooled.eq(pooled),
            # A pixel that is written several times waits there.
            self.pooled_ready.eq(willing & pooled & at.leaves),
            self.issue.select.eq(at.select),
            self.issue.load.eq(loads_parameters),
            self.issue.release.eq(last_time),
        ]
        m.d.comb += [self.issue[name].eq(at[name]) for name in results.ISSUE]
        # The second stage's cycles after an issue are busy as well.
        recent = Signal(max(1, config.residual_cycles - 1))
        m.d.sync += [
            self.take_residual.eq(go & first & wants_residual),
            gives_token.eq(store.post_compute & ~local),
            self.post_compute.eq(issue & at.end & gives_token),
            recent.eq(Cat(turns.goes_on(issue, add), recent)),
        ]

        # -- instructions ---------------------------------------------------------------------------------------------
        is_store, taken, ended = (Signal(name=name) for name in ("is_store", "taken", "ended"))
        # What is at the queue's head leaves it; an instruction that is noted there, if only to leave later.
        passes, in_hand = self.drained, self.queue.ready    # what is no STORE may leave
        if self._loading:
            which, begins = Signal(len(self._loading), name="which_loads"), Signal(name="begins_load")
            m.d.comb += [
                which.eq(Cat(is_operation(word, op, config) & instruction_layout(op)(word).load
                             for op in self._loading)),
                begins.eq(resting & ~self.halt & self.drained & which.any() & self.queue.valid),
            ]
            m.d.sync += self.load_wanted.eq(which & begins.replicate(len(which)) & ~self.loaded)
            # What loads begins, and leaves, with nothing under way: as what leaves at once.
            in_hand = resting & ~self.halt & (is_store | passes)
            passes &= ~(which & ~self.loaded).any()
        m.d.comb += [
            is_store.eq(is_operation(word, Opcode.STORE, config)),
            self.queue.ready.eq(resting & ~self.halt & (is_store | passes)),
            taken.eq(resting & ~self.halt & self.queue.valid & is_store),
        ]
        with m.If(self.queue.valid & in_hand):
            m.d.sync += self.index.eq(self.queue.p.index)
        with m.If(resting & ~self.halt & self.drained & self.queue.valid):
            with m.If(is_operation(word, Opcode.STORE_SET, config)):
                m.d.sync += Value.cast(geometry).eq(word)
            take_operation(m, chain, word, config)
        m.d.sync += begin.eq(taken)
        with m.If(taken):
            m.d.sync += [Value.cast(store).eq(word), resting.eq(0), ended.eq(0)]
        with m.If(issue & at.end):
            m.d.sync += ended.eq(1)

        no_geometry, too_many, refused, token = (
            Signal(name=name) for name in ("no_geometry", "too_many", "refused", "token"))
        beyond, fails, done = Signal(), Signal(), Signal()
        m.d.comb += [
            no_geometry.eq((geometry.cols == 0) | ~chain.begun),
            too_many.eq(~pooled & (store.blocks > blocks_of_bank)),
            # The parameters arrive while a token is waited for.
            starts.eq(waiting & token & ~refused),
            self.compute_take.eq(starts & store.wait_compute),
            # What is before that position has set out.
            beyond.eq(pixels.beyond & ~position.valid),
            fails.eq((waiting & refused) | (running & (self.runs_failed | beyond))),
            done.eq(running & ended & self.runs_idle),
        ]
        m.d.sync += [
            refused.eq(no_geometry | too_many),
            token.eq(~lacks(self.compute_level, store.wait_compute)),
            waiting.eq(begin | (waiting & ~token & ~refused)),
        ]
        with m.If(starts):
            m.d.sync += running.eq(1)
        with m.Elif(fails):
            m.d.sync += [running.eq(0), block_open.eq(0), able.eq(0)]
        with m.Elif(done):
            m.d.sync += [running.eq(0), resting.eq(1)]

        # -- report ---------------------------------------------------------------------------------------------------
        refusal = Mux(no_geometry, ErrorCode.ILLEGAL, ErrorCode.BUFFER)
        failure = Mux(self.runs_failed & ~local, ErrorCode.WRITE_RANGE, ErrorCode.BUFFER)
        m.d.sync += [
            self.error.valid.eq(fails),
            self.error.code.eq(Mux(running, failure, refusal)),
            self.error.index.eq(self.index),
            self.idle.eq(resting & self.drained & ~self.queue.valid),
            self.state.eq(_STATE["setup"]),
        ]
        with m.If(resting):
            m.d.sync += self.state.eq(_STATE["idle"])
            if self._loading:
                with m.If(self.load_wanted.any()):
                    m.d.sync += self.state.eq(Mux(self.side_valid, _STATE["setup"], _STATE["wait_side"]))
        with m.Elif(waiting & ~token & ~refused):
            m.d.sync += self.state.eq(_STATE["wait_compute"])
        with m.Elif(running):
            with m.If(go | recent.any()):
                m.d.sync += self.state.eq(_STATE["busy"])
            with m.Elif(ended):
                m.d.sync += self.state.eq(_STATE["wait_bus"])
            with m.Elif(lacks_parameters | lacks_residual):
                # Parameters that are on their way are setup; so is the wait for the multipliers' turn.
                with m.If(turns.waits(self, lacks_parameters)):
                    m.d.sync += self.state.eq(_STATE["wait_side"])
            with m.Elif(lacks_pooled):
                m.d.sync += self.state.eq(_STATE["wait_compute"])
            with m.Elif(~has_room):
                m.d.sync += self.state.eq(_STATE["wait_bus"])
        return m
