"""Control of the store engine: instructions, tokens, and when a pixel sets out."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..arch.instruction_layout import instruction_layout, opcode_of
from ..arch.isa import ErrorCode, Opcode, Queue
from ..arch.registers import STATE_CODES
from ..config import NpuConfig
from ..control.engine_port import EnginePort, lacks
from .requantizer import PixelIssue, Requantizer
from .store_pixels import StorePixels

__all__ = ["StoreSequencer"]

_STATE = STATE_CODES["store"]


class StoreSequencer(wiring.Component):
    """Takes the store queue's instructions and issues the pixels of each STORE.

    A pixel sets out when all it needs is there: the block's channel parameters, ``room`` behind the requantizer, with
    ``add`` a residual unless it bends, with ``pooled`` a beat of the pool unit. With ``winograd``, the words of its sum
    are read first, one a cycle, and ``issue`` is valid with the last. Between blocks there is no gap if the next
    parameters are there. The set operations wait until the requantizer has ``drained``, as it reads ``geometry`` and
    ``second``.

    The word of the next position is read in every cycle, whether a pixel sets out or not; a residual is taken
    `RESIDUAL_CYCLES` behind its pixel's first word: neither the accumulators' enable nor the side ring waits for all
    that a pixel waits for.

    The next instruction waits until all runs are taken. A bank that cannot hold the tile is a BUFFER error, as is a
    local row that begins outside the input buffer; a STORE without a STORE_SET in front of it is ILLEGAL. After an
    error nothing moves until reset. ``state`` is that of the cycle before.
    """

    #: Ports that are those of the engine; its token and error may also be those of a local STORE's writer.
    SHARED = ("queue", "compute_level", "compute_take", "state", "index", "idle", "halt", "read_address")
    #: Cycles from taking a STORE until its first pixel may set out: it is checked, and takes its token.
    SETUP_CYCLES = 2
    #: Cycles from seeing a token until it is taken.
    TOKEN_CYCLES = 1
    #: Cycles from a pixel, or the first word of its sum, until its residual is taken.
    RESIDUAL_CYCLES = 1
    #: Cycles from a state to its report.
    STATE_CYCLES = 1

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            **EnginePort(Queue.STORE, without=("post_load",)).members,
            "geometry": Out(instruction_layout(Opcode.STORE_SET)),  # the latest STORE_SET
            "second": Out(instruction_layout(Opcode.STORE_ADD)),  # the latest STORE_ADD
            "store": Out(instruction_layout(Opcode.STORE)),  # the STORE at hand
            "take_residual": Out(1),            # the pixel's beat of the side ring is taken
            "issue": Out(PixelIssue(config)),  # a pixel sets out
            "read": Out(1),                     # a word of sums is read
            "read_address": Out(range(config.acc_depth)),  # its address
            "drained": In(1),                   # nothing is behind the issue
            "room": In(1),                      # for another beat
            "side_valid": In(1),                # the side ring has a beat
            "pooled_valid": In(1),              # the pool unit has one
            "pooled_ready": Out(1),             # it is taken if it is there
            "parameters_wanted": Out(1),        # take those of the next block
            "parameters_loaded": In(1),         # they are complete
            "runs_start": Out(1),               # begin the STORE's runs
            "runs_idle": In(1),                 # they are all taken
            "runs_failed": In(1),               # one would be outside its region
        })

    def elaborate(self, platform):
        m = Module()
        config, geometry, store = self.config, self.geometry, self.store
        opcode = opcode_of(self.queue.p.word)
        add, pooled = geometry.add, store.pooled
        blocks_of_bank = config.oc_groups
        if config.banks > config.pixel_lanes:
            blocks_of_bank = Mux(geometry.spread | geometry.alternate, 1, config.oc_groups)
        # A local STORE's token is given when its beats are in the input buffer.
        local = geometry.local if config.local_store else Const(0)

        begin = Signal()
        resting, running = Signal(init=1), Signal()     # the states IDLE and RUN
        m.submodules.pixels = pixels = StorePixels(config)
        position = pixels.position
        at = position.payload
        m.d.comb += [
            pixels.restart.eq(begin),
            pixels.geometry.eq(geometry),
            pixels.store.eq(store),
            self.read_address.eq(at.address),
            self.read.eq(running & position.valid & ~pooled),
        ]

        # -- parameters ---------------------------------------------------------------------------------------------
        blocks_to_load = Signal.like(store.blocks, name="blocks_to_load")
        # Those of the block at hand are there; those of the next one too.
        has_parameters, has_next = Signal(), Signal()
        block_ends = Signal()
        with m.If(begin):
            m.d.sync += [blocks_to_load.eq(store.blocks), self.parameters_wanted.eq(1)]
        with m.If(self.parameters_loaded):
            m.d.sync += [blocks_to_load.eq(blocks_to_load - 1), self.parameters_wanted.eq(blocks_to_load != 1)]
        with m.If(block_ends):
            m.d.sync += [has_parameters.eq(has_next | self.parameters_loaded), has_next.eq(0)]
        with m.Elif(self.parameters_loaded):
            m.d.sync += [has_parameters.eq(1), has_next.eq(has_parameters)]

        # -- turns --------------------------------------------------------------------------------------------------
        # Those of the next cycle. Without residuals as many pixels as there is time to their second turns, then these.
        phase, burst = Signal(range(Requantizer.ADD_CYCLES), init=1), Signal(range(2 * Requantizer.SECOND))
        bends, residual = Signal(), Signal()
        m.d.sync += [
            phase.eq(Mux(phase == Requantizer.ADD_CYCLES - 1, 0, phase + 1)),
            burst.eq(burst + 1),
            bends.eq(add & self.second.bend),
            residual.eq(add & ~self.second.bend),
        ]
        with m.If(begin):
            # The parameters take as long to come as one half of the bursts.
            m.d.sync += burst.eq(Requantizer.SECOND + 1)
        in_bursts = bends
        if config.binary_rows:
            # Their beats pass the lanes' last registers behind second turns, when the next burst's first ones do.
            in_bursts = in_bursts & ~geometry.binary
        turn_comes = Mux(in_bursts, burst < Requantizer.SECOND, phase == 0)
        if config.winograd:
            # Nine words later, with the last one, it is the pixel's turn.
            turn_comes = Mux(geometry.winograd, phase == 1, turn_comes)
        turn = Signal()
        m.d.sync += turn.eq(~add | turn_comes)

        # -- a pixel, or a word of its sum ----------------------------------------------------------------------------
        go, issue, lacks_parameters, lacks_residual, lacks_pooled = (Signal(name=name) for name in (
            "go", "issue", "lacks_parameters", "lacks_residual", "lacks_pooled"))
        first = last = Const(1)
        if config.winograd:
            # What a pixel needs stays there, or has been taken, so its words follow the first without a gap.
            first, last = at.first, at.last
            m.d.comb += [self.issue.first.eq(first), self.issue.negate.eq(at.negate)]
        ready, willing = Signal(), Signal()     # but for the pool unit; and there is a pixel
        m.d.comb += [
            lacks_parameters.eq(~has_parameters),
            lacks_residual.eq(residual & ~self.side_valid),
            lacks_pooled.eq(pooled & ~self.pooled_valid),
            ready.eq(~first | (turn & self.room & ~lacks_parameters & ~lacks_residual)),
            willing.eq(running & position.valid & ready),
            go.eq(willing & ~lacks_pooled),
            issue.eq(go & last),
            position.ready.eq(go),
            block_ends.eq(issue & at.block_end),
            self.issue.valid.eq(issue),
            self.issue.pooled.eq(pooled),
            # A pixel that is written several times waits there.
            self.pooled_ready.eq(willing & pooled & at.leaves),
            self.issue.select.eq(at.select),
            self.issue.load.eq(at.block_start | add),
            self.issue.release.eq(Mux(add, at.block_end, at.block_start)),
        ]
        if config.binary_rows:
            m.d.comb += self.issue.row_end.eq(at.row_end)
        # The second stage's two cycles behind an issue are busy as well.
        recent = Signal(Requantizer.ADD_CYCLES - 1)
        m.d.sync += [
            self.take_residual.eq(go & first & residual),
            self.post_compute.eq(issue & at.end & store.post_compute & ~local),
            recent.eq(Cat(issue & add, recent)),
        ]

        # -- instructions ---------------------------------------------------------------------------------------------
        error_code = Signal(ErrorCode)
        outside = Mux(local, ErrorCode.BUFFER, ErrorCode.WRITE_RANGE)
        state = Signal.like(self.state, name="state_now")
        no_geometry, too_many, refused, token = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            state.eq(_STATE["setup"]),
            no_geometry.eq(geometry.cols == 0),
            too_many.eq(~pooled & (store.blocks > blocks_of_bank)),
        ]
        m.d.sync += [
            self.error.valid.eq(error_code != ErrorCode.NONE),
            self.error.code.eq(error_code),
            self.error.index.eq(self.index),
            self.state.eq(state),
            self.idle.eq(resting & self.drained & ~self.queue.valid),
            refused.eq(no_geometry | too_many),
            token.eq(~lacks(self.compute_level, store.wait_compute)),
        ]
        is_store, taken = Signal(), Signal()
        m.d.comb += [
            is_store.eq(opcode == Opcode.STORE),
            self.queue.ready.eq(resting & ~self.halt & (is_store | self.drained)),
            taken.eq(self.queue.valid & self.queue.ready),
        ]
        with m.If(taken):
            m.d.sync += self.index.eq(self.queue.p.index)
            with m.Switch(opcode):
                for code, target in ((Opcode.STORE_SET, geometry), (Opcode.STORE_ADD, self.second),
                                     (Opcode.STORE, store)):
                    with m.Case(code):
                        m.d.sync += Value.cast(target).eq(self.queue.p.word)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += state.eq(_STATE["idle"])
                with m.If(taken & is_store):
                    m.d.sync += resting.eq(0)
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.d.comb += begin.eq(1)
                m.next = "WAIT"
            with m.State("WAIT"):
                # The parameters arrive meanwhile.
                with m.If(refused):
                    m.d.comb += error_code.eq(Mux(no_geometry, ErrorCode.ILLEGAL, ErrorCode.BUFFER))
                    m.next = "STOPPED"
                with m.Elif(token):
                    m.d.comb += [self.compute_take.eq(store.wait_compute), self.runs_start.eq(1)]
                    m.d.sync += running.eq(1)
                    m.next = "RUN"
                with m.Else():
                    m.d.comb += state.eq(_STATE["wait_compute"])
            with m.State("RUN"):
                # What is before it has set out.
                beyond = pixels.beyond & ~position.valid
                with m.If(go | recent.any()):
                    m.d.comb += state.eq(_STATE["busy"])
                with m.Elif(lacks_parameters | lacks_residual):
                    # Parameters that are on their way are setup; so is the wait for the multipliers' turn.
                    with m.If(~self.side_valid):
                        m.d.comb += state.eq(_STATE["wait_side"])
                with m.Elif(lacks_pooled):
                    m.d.comb += state.eq(_STATE["wait_compute"])
                with m.Elif(~self.room):
                    m.d.comb += state.eq(_STATE["wait_bus"])
                with m.If(issue & at.end):
                    m.d.sync += running.eq(0)
                    m.next = "FINISH"
                with m.If(self.runs_failed | beyond):
                    m.d.comb += error_code.eq(Mux(self.runs_failed, outside, ErrorCode.BUFFER))
                    m.d.sync += running.eq(0)
                    m.next = "STOPPED"
            with m.State("FINISH"):
                m.d.comb += state.eq(Mux(recent.any(), _STATE["busy"], _STATE["wait_bus"]))
                with m.If(self.runs_idle):
                    m.d.sync += resting.eq(1)
                    m.next = "IDLE"
                with m.If(self.runs_failed):
                    m.d.comb += error_code.eq(outside)
                    m.next = "STOPPED"
            with m.State("STOPPED"):
                pass
        return m
