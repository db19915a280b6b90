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
    are read first, one a cycle: ``read``, while ``issue`` is valid with the last. Between blocks there is no gap if the
    next parameters are there. The set operations wait until the requantizer has ``drained``, as it reads ``geometry``
    and ``second``.

    The next instruction waits until all runs are taken. A bank that cannot hold the tile is a BUFFER error, as is a
    local row that begins outside the input buffer; a STORE without a STORE_SET in front of it is ILLEGAL. After an
    error nothing moves until reset.
    """

    #: Ports that are those of the engine; its token and error may also be those of a local STORE's writer.
    SHARED = ("queue", "compute_level", "compute_take", "state", "index", "idle", "halt", "read_address")
    #: Cycles from taking a STORE until its first pixel may set out: it is checked, and takes its token.
    SETUP_CYCLES = 2

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            **EnginePort(Queue.STORE, without=("post_load",)).members,
            "geometry": Out(instruction_layout(Opcode.STORE_SET)),  # the latest STORE_SET
            "second": Out(instruction_layout(Opcode.STORE_ADD)),  # the latest STORE_ADD
            "store": Out(instruction_layout(Opcode.STORE)),  # the STORE at hand
            "residual": Out(1),                 # each of its pixels takes a beat of the side ring
            "issue": Out(PixelIssue(config)),  # a pixel sets out
            "read": Out(1),                     # a word of sums is read
            "read_address": Out(range(config.acc_depth)),  # its address
            "drained": In(1),                   # nothing is behind the issue
            "room": In(1),                      # for another beat
            "side_valid": In(1),                # the side ring has a beat
            "pooled_valid": In(1),              # the pool unit has one
            "pooled_ready": Out(1),             # it is taken
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
        add = geometry.add
        blocks_of_bank = config.oc_groups
        if config.banks > config.pixel_lanes:
            blocks_of_bank = Mux(geometry.spread | geometry.alternate, 1, config.oc_groups)

        blocks_to_load = Signal.like(store.blocks)
        fresh = Signal()  # parameters are held that no pixel has used yet
        m.d.comb += [self.parameters_wanted.eq(blocks_to_load != 0), self.residual.eq(add & ~self.second.bend)]
        with m.If(self.parameters_loaded):
            m.d.sync += [blocks_to_load.eq(blocks_to_load - 1), fresh.eq(1)]

        m.submodules.pixels = pixels = StorePixels(config)
        phase = Signal(range(Requantizer.ADD_CYCLES))
        m.d.sync += phase.eq(Mux(phase == Requantizer.ADD_CYCLES - 1, 0, phase + 1))
        go, issue, lacks_parameters, lacks_residual, lacks_pooled = (Signal(name=name) for name in (
            "go", "issue", "lacks_parameters", "lacks_residual", "lacks_pooled"))
        # Without residuals as many pixels as there is time to their second turns, then these.
        burst = Signal(range(2 * Requantizer.SECOND))
        m.d.sync += burst.eq(burst + 1)
        in_bursts = self.second.bend
        if config.binary_rows:
            # Their beats pass the lanes' last registers behind second turns, when the next burst's first ones do.
            in_bursts = in_bursts & ~geometry.binary
        turn = Mux(in_bursts, burst < Requantizer.SECOND, phase == 0)
        if config.winograd:
            # What a pixel needs stays there, so its words follow the first without a gap; eight later the turn is 0.
            turn = Mux(geometry.winograd, (phase == 1) | ~pixels.first, turn)
            m.d.comb += [issue.eq(go & pixels.last), self.issue.first.eq(pixels.first),
                         self.issue.negate.eq(pixels.negate)]
        else:
            m.d.comb += issue.eq(go)
        m.d.comb += [
            lacks_parameters.eq(pixels.block_start & ~fresh),
            lacks_residual.eq(self.residual & ~self.side_valid),
            lacks_pooled.eq(store.pooled & ~self.pooled_valid),
            self.read.eq(go & ~store.pooled),
            pixels.step.eq(go),
            pixels.geometry.eq(geometry),
            pixels.store.eq(store),
            self.read_address.eq(pixels.address),
            self.issue.valid.eq(issue),
            self.issue.pooled.eq(store.pooled),
            # A pixel that is written several times waits there.
            self.pooled_ready.eq(issue & store.pooled & pixels.leaves),
            self.issue.select.eq(pixels.select),
            self.issue.load.eq(pixels.block_start | add),
            self.issue.release.eq(Mux(add, pixels.block_end, pixels.block_start)),
        ]
        if config.binary_rows:
            m.d.comb += self.issue.row_end.eq(pixels.row_end)
        with m.If(issue & pixels.block_start):
            m.d.sync += fresh.eq(0)
        # A local STORE's token is given when its beats are in the input buffer.
        local = geometry.local if config.local_store else Const(0)
        m.d.sync += self.post_compute.eq(issue & pixels.end & store.post_compute & ~local)

        error_code = Signal(ErrorCode)
        outside = Mux(local, ErrorCode.BUFFER, ErrorCode.WRITE_RANGE)
        m.d.sync += [
            self.error.valid.eq(error_code != ErrorCode.NONE),
            self.error.code.eq(error_code),
            self.error.index.eq(self.index),
        ]
        # The second stage's two cycles behind an issue are busy as well.
        recent = Signal(Requantizer.ADD_CYCLES - 1)
        m.d.sync += recent.eq(Cat(issue & add, recent))

        m.d.comb += self.state.eq(_STATE["setup"])
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [
                    self.idle.eq(self.drained),
                    self.state.eq(_STATE["idle"]),
                    self.queue.ready.eq(~self.halt & ((opcode == Opcode.STORE) | self.drained)),
                ]
                with m.If(self.queue.valid & self.queue.ready):
                    m.d.sync += self.index.eq(self.queue.p.index)
                    with m.If(opcode == Opcode.STORE_SET):
                        m.d.sync += Value.cast(geometry).eq(self.queue.p.word)
                    with m.Elif(opcode == Opcode.STORE_ADD):
                        m.d.sync += Value.cast(self.second).eq(self.queue.p.word)
                    with m.Else():
                        m.d.sync += Value.cast(store).eq(self.queue.p.word)
                        m.next = "CHECK"
            with m.State("CHECK"):
                m.d.comb += pixels.restart.eq(1)
                # The parameters take as long to come as one half of the bursts.
                m.d.sync += [blocks_to_load.eq(store.blocks), burst.eq(Requantizer.SECOND)]
                m.next = "WAIT"
                with m.If(geometry.cols == 0):
                    m.d.comb += error_code.eq(ErrorCode.ILLEGAL)
                    m.next = "STOPPED"
                with m.Elif(~store.pooled & (store.blocks > blocks_of_bank)):
                    m.d.comb += error_code.eq(ErrorCode.BUFFER)
                    m.next = "STOPPED"
            with m.State("WAIT"):
                # The parameters arrive meanwhile.
                with m.If(lacks(self.compute_level, store.wait_compute)):
                    m.d.comb += self.state.eq(_STATE["wait_compute"])
                with m.Else():
                    m.d.comb += [self.compute_take.eq(store.wait_compute), self.runs_start.eq(1)]
                    m.next = "RUN"
            with m.State("RUN"):
                beyond = ~store.pooled & pixels.beyond
                m.d.comb += go.eq(
                    self.room & ~beyond & (turn | ~add) & ~lacks_parameters & ~lacks_residual & ~lacks_pooled)
                with m.If(go | recent.any()):
                    m.d.comb += self.state.eq(_STATE["busy"])
                with m.Elif(lacks_parameters | lacks_residual):
                    # Parameters that are on their way are setup; so is the wait for the multipliers' turn.
                    with m.If(~self.side_valid):
                        m.d.comb += self.state.eq(_STATE["wait_side"])
                with m.Elif(lacks_pooled):
                    m.d.comb += self.state.eq(_STATE["wait_compute"])
                with m.Elif(~self.room):
                    m.d.comb += self.state.eq(_STATE["wait_bus"])
                with m.If(issue & pixels.end):
                    m.next = "FINISH"
                with m.If(self.runs_failed):
                    m.d.comb += error_code.eq(outside)
                    m.next = "STOPPED"
                with m.Elif(beyond):
                    m.d.comb += error_code.eq(ErrorCode.BUFFER)
                    m.next = "STOPPED"
            with m.State("FINISH"):
                m.d.comb += self.state.eq(Mux(recent.any(), _STATE["busy"], _STATE["wait_bus"]))
                with m.If(self.runs_idle):
                    m.next = "IDLE"
                with m.If(self.runs_failed):
                    m.d.comb += error_code.eq(outside)
                    m.next = "STOPPED"
            with m.State("STOPPED"):
                pass
        return m
