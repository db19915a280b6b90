"""Tile sequencer: turns COMPUTE and POOL into one input-buffer address a cycle."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ..arch.error_codes import ErrorCode
from ..arch.instruction_layout import (
    INDEX_BITS,
    field_shape,
    flags_of,
    instruction_layout,
    is_operation,
    kind_flags,
)
from ..arch.isa import Opcode, Queue, StepKind
from ..arch.registers import STATE_CODES
from ..buffers.accumulators import Accumulators
from ..buffers.input_buffer import buffer_address_bits
from ..config import NpuConfig
from ..control.engine_port import EnginePort, lacks, setting_ports
from ..lib.component import Component, record
from ..timing.compute import TileSequencerTiming
from .tile_loops import TileLoops
from .word_issue import WordIssue
from .word_kind import Turn
from .word_parts import word_kinds

__all__ = ["TileSequencer"]

_STATE = STATE_CODES["compute"]


class TileSequencer(TileSequencerTiming, Component):
    """Control of the compute queue: an issue a cycle (`TileLoops`), from one instruction to the next without a gap.
    What is different for words that not all machines have, their `WordKind` says.

    A step starts when its weights are ready and ``min_step`` cycles after the step before (the accumulators' hazard).
    The instruction after the running one is decoded early, so that its weights can be gathered (``fill_*``).

    Sums of windows and of streams come later than others', so instructions of another kind keep a ``distance``: cycles
    between the last issue of one and the other's becoming the running instruction.

    Raises ValueError unless ``min_step`` and ``distance`` are positive.
    """

    #: Ports that are those of the engine it is in; ``idle`` and ``post_store`` take what is after it too.
    SHARED = ("queue", "load_level", "load_take", "store_level", "store_take", "post_load", "state", "index", "error",
              "halt")
    def __init__(self, config: NpuConfig, *, min_step: int, distance: int):
        for name, value in (("min_step", min_step), ("distance", distance)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value!r}")
        self.config = config
        self.min_step, self.distance = min_step, distance
        address = unsigned(buffer_address_bits(config))
        super().__init__({
            **EnginePort(Queue.COMPUTE, without=("post_store",)).members,
            "fill_valid": Out(1),               # there is a step whose weights can be gathered
            "fill_kinds": Out(kind_flags(StepKind, config)),    # what they are
            "fill_group": Out(field_shape(Opcode.COMPUTE, "groups")),               # its number in its block's tap
            **setting_ports(Queue.COMPUTE, config, In),
            "weights_ready": In(1),             # the next step may start
            "pool_ready": In(1),                # the next window may
            "issue": Out(WordIssue(config)),  # what this cycle's addresses are for
            "address": Out(data.ArrayLayout(address, config.banks)),  # entry of each bank
            # The instruction that is taken sets something of a unit.
            **({"sets": Out(1)} if any(kind.SETS for kind in word_kinds(config)) else {}),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        kinds = word_kinds(config)
        m.submodules.loops = loops = TileLoops(config)
        set_layout, compute_layout = instruction_layout(Opcode.COMPUTE_SET), instruction_layout(Opcode.COMPUTE)

        # -- decode one instruction ahead ---------------------------------------------------------------------------
        entry = self.queue.payload
        geometry = record(set_layout)               # of the latest COMPUTE_SET
        following = record(data.StructLayout({      # decoded, waiting for its turn
            "valid": 1, "pool": 1, "index": INDEX_BITS, "word": compute_layout, "geometry": set_layout,
            "kinds": kind_flags(StepKind, config)}))
        setters = [setter for kind in kinds for setter in kind.setters(entry.word)]
        may_take = ~following.valid & ~self.halt
        if setters:
            settled = Signal()      # nothing is under way that looks at what is set
            may_take = may_take & (settled | ~Cat(setters).any())
            m.d.comb += self.sets.eq(self.queue.valid & self.queue.ready & Cat(setters).any())
        m.d.comb += self.queue.ready.eq(may_take)
        with m.If(~following.valid):
            m.d.sync += [
                following.pool.eq(is_operation(entry.word, Opcode.POOL, config)),
                following.index.eq(entry.index),
                Value.cast(following.word).eq(entry.word),
                # Of a POOL its reserved bits: none.
                Value.cast(following.kinds).eq(flags_of(compute_layout(entry.word).kind, StepKind, config)),
                following.geometry.eq(geometry),
            ]
        with m.If(self.queue.valid & self.queue.ready):
            with m.If(is_operation(entry.word, Opcode.COMPUTE_SET, config)):
                m.d.sync += Value.cast(geometry).eq(entry.word)
            with m.Else():
                m.d.sync += following.valid.eq(~Cat(setters).any() if setters else 1)

        # -- may this cycle issue? ----------------------------------------------------------------------------------
        # All that it depends on are registers, and what follows from it is in one look-up table more.
        running, index = loops.running, Signal(INDEX_BITS)
        began = Signal()    # a cycle ago the running instruction did; ``following`` is still the same
        g, pool = loops.geometry, loops.pool
        # A POOL's word seen as itself.
        windows = data.View(instruction_layout(Opcode.POOL), Value.cast(loops.word))
        step_free, pause = Signal(init=1), Signal(range(self.min_step))
        go, done, step_starts = Signal(), Signal(), Signal()
        turn = Turn(running, go, go)
        for kind in kinds:
            turn = kind.pace(m, self, loops, turn, go=go, done=done, step_free=step_free, following=following)
        m.d.comb += [
            go.eq(turn.may_go & ~(loops.at_start & ~Mux(pool, self.pool_ready, self.weights_ready & step_free))),
            done.eq(go & loops.last),
            step_starts.eq(turn.begins & loops.at_start & ~pool),
            loops.go.eq(go),
        ]
        with m.If(step_starts):
            m.d.sync += [pause.eq(self.min_step - 1), step_free.eq(self.min_step == 1)]
        with m.Elif(~step_free):
            m.d.sync += [pause.eq(pause - 1), step_free.eq(pause == 1)]

        # -- take the next instruction ------------------------------------------------------------------------------
        # ``following`` becomes the running instruction as soon as the running one has issued its last cycle.
        waits_load = lacks(self.load_level, following.word.wait_load)
        waits_store = lacks(self.store_level, following.word.wait_store)
        may_follow, prepared, last_index = 1, Signal(), Signal.like(index, name="last_index")
        alike = [condition for kind in kinds for condition in kind.same(loops, following)]
        if alike:
            # Between two kinds nothing runs for a while.
            distance = Signal(range(self.distance))
            with m.If(running):
                m.d.sync += distance.eq(self.distance - 1)
            with m.Elif(distance != 0):
                m.d.sync += distance.eq(distance - 1)
            same = alike[0] if len(alike) == 1 else Cat(alike).all()
            may_follow = same | (~running & (distance == 0))
            if setters:
                apart = Signal(init=1)      # ``distance`` is 0: known ahead, as much follows of it
                with m.If(running):
                    m.d.sync += apart.eq(self.distance == 1)
                with m.Elif(~apart):
                    m.d.sync += apart.eq(distance == 1)
                m.d.comb += settled.eq(~running & apart)
        m.d.sync += prepared.eq(following.valid & may_follow & ~waits_load & ~waits_store & ~self.halt & ~loops.start)
        m.d.comb += [
            loops.start.eq(prepared & (~running | done)),
            loops.next_geometry.eq(following.geometry),
            loops.next_word.eq(following.word),
            loops.next_pool.eq(following.pool),
            loops.next_kinds.eq(following.kinds),
        ]
        m.d.comb += [
            self.load_take.eq(began & following.word.wait_load),
            self.store_take.eq(began & following.word.wait_store),
            index.eq(Mux(began, following.index, last_index)),
        ]
        m.d.sync += [began.eq(loops.start), last_index.eq(index)]
        with m.If(loops.start):
            m.d.sync += following.valid.eq(0)

        # -- what the weight loader gathers next --------------------------------------------------------------------
        # The first step that has not started: the one at the counters, or the one after it.
        with m.If(running & ~pool & (loops.at_start | ~loops.last_step)):
            m.d.comb += [
                self.fill_valid.eq(1),
                self.fill_kinds.eq(loops.kinds),
                self.fill_group.eq(loops.next_group),
            ]
        with m.Else():
            m.d.comb += [
                self.fill_valid.eq(following.valid & ~following.pool),
                self.fill_kinds.eq(following.kinds),
            ]

        # -- issue --------------------------------------------------------------------------------------------------
        issue = self.issue
        m.d.sync += [
            issue.gemm.eq(go & ~pool & loops.lower),
            issue.pool.eq(go & pool),
            issue.turn.eq(loops.turn),
            issue.step_start.eq(step_starts),
            issue.first.eq(loops.word.first & loops.first_step),
            issue.bank.eq(loops.word.bank),
            issue.acc_address.eq(loops.acc_address),
            issue.post_store.eq(done & loops.word.post_store & ~pool),
            issue.lane.eq(loops.lane),
            issue.window_start.eq(loops.at_start & ~windows.resume),
            issue.window_end.eq(loops.last_tap & ~windows.open),
            issue.maximum.eq(windows.maximum),
            self.post_load.eq(done & loops.word.post_load),
        ]
        for kind in kinds:
            m.d.sync += kind.issue(issue, loops, turn, go=go)
        if Accumulators.split(config):
            m.d.sync += [issue.upper_gemm.eq(go & ~pool & loops.upper), issue.upper_address.eq(loops.upper_address)]

        # -- report -------------------------------------------------------------------------------------------------
        # A cycle after the issue; ``index`` may be the next instruction's by then.
        issued, issued_index, beyond_bank, no_geometry = Signal(), Signal(INDEX_BITS), Signal(), Signal()
        entries = Signal.like(loops.address, name="entries")
        m.d.sync += [
            issued.eq(go),
            issued_index.eq(index),
            entries.eq(loops.address),
            beyond_bank.eq(go & ~pool & loops.lower & (loops.acc_address >= config.acc_depth)),
            no_geometry.eq(running & (g.kernel_w == 0)),    # no COMPUTE_SET in front of it
        ]
        m.d.comb += [self.address[bank].eq(entry) for bank, entry in enumerate(entries)]
        beyond_buffer = Cat(entry >= config.input_depth for entry in entries).any()
        m.d.sync += [
            self.error.valid.eq((issued & beyond_buffer) | beyond_bank | no_geometry),
            self.error.code.eq(Mux(no_geometry, ErrorCode.ILLEGAL, ErrorCode.BUFFER)),
            self.error.index.eq(issued_index),
            self.index.eq(Mux(running | ~following.valid, index, following.index)),
        ]
        m.d.comb += self.idle.eq(~(self.queue.valid | following.valid | running | issued))
        state = Signal.like(self.state, name="state_now")
        m.d.sync += self.state.eq(state)
        with m.If(turn.works):
            m.d.comb += state.eq(_STATE["busy"])
        with m.Elif(running & loops.at_start & ~pool & ~self.weights_ready):
            m.d.comb += state.eq(_STATE["wait_weights"])
        with m.Elif(running & pool):
            m.d.comb += state.eq(_STATE["wait_store"])
        with m.Elif(running):
            m.d.comb += state.eq(_STATE["setup"])
        with m.Elif(following.valid & waits_load):
            m.d.comb += state.eq(_STATE["wait_load"])
        with m.Elif(following.valid & waits_store):
            m.d.comb += state.eq(_STATE["wait_store"])
        with m.Elif(following.valid):
            m.d.comb += state.eq(_STATE["setup"])
        return m
