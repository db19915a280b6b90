"""Compute engine: sequencer, input buffer, multiplier array, accumulators and pool unit."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..arch.isa import Queue, StepKind
from ..arch.numerics import POOL_WIDTH
from ..arch.stochastic import LENGTH_BITS
from ..buffers.accumulators import Accumulators
from ..buffers.input_buffer import BufferWrite, InputBuffer
from ..config import NpuConfig
from ..control.engine_port import EnginePort, connect_shared
from .binary.binary_unit import BinaryUnit
from .mac_array import MacArray
from .pool_unit import PoolUnit
from .stochastic.stochastic_words import StochasticWords
from .tile_sequencer import TileSequencer, WordIssue, issue_stages
from .weight_loader import WeightLoader

__all__ = ["ComputeEngine", "compute_ports"]


def compute_ports(config: NpuConfig) -> dict[str, wiring.Member]:
    """Ports of what executes the compute queue."""
    return {
        **EnginePort(Queue.COMPUTE).members,
        "write": In(BufferWrite(config)),             # entries for the input buffer
        "weights": In(stream.Signature(config.beat_bits)),  # from the weight ring
        "weights_level": In(range(config.weight_depth + 1)),  # beats in the ring
        # Windows' results, for the store engine.
        "pooled": Out(stream.Signature(data.ArrayLayout(signed(POOL_WIDTH), config.ic_lanes))),
        "read_enable": In(1),                         # the store engine reads a word of sums
        "read_bank": In(1),                           # from this accumulator bank
        "read_address": In(range(config.acc_depth)),  # at this place
        # The word, a cycle later and until the next is read.
        "read_data": Out(data.ArrayLayout(signed(config.acc_width), config.acc_lanes)),
        # Streams are shorter by so many powers of two; stands still during a run.
        **({"stream_shift": In(LENGTH_BITS)} if config.stochastic_rows else {}),
    }


class ComputeEngine(wiring.Component):
    """Executes the compute queue. docs/datapath.md has its pipeline, cycles and area.

    Rate: one word of ``pixel_lanes`` pixels a cycle, one of streams in as many as they are made in; a step takes at
    least ``min_step(config)`` cycles and as long as its weights need. Golden models: ``sim.golden.conv2d_accumulate``,
    ``sim.golden.pool_accumulate``, ``sim.stochastic.circuits``.

    ``paired``: it stands beside another engine and tells what that has to know.
    """

    #: Cycles from the last work until ``idle``; state and index are as late.
    REPORT = 1

    def __init__(self, config: NpuConfig, *, paired: bool = False):
        self.config = config
        self.paired = paired
        #: Where its sums are.
        self.accumulators = (Accumulators(config),)
        super().__init__({
            **compute_ports(config),
            **({
                "working": Out(1),   # at anything but handing over what has been pooled
                "computed": Out(2),  # banks that a word is being added to
            } if paired else {}),
        })

    @staticmethod
    def handover(config: NpuConfig, kind: StepKind = StepKind.DENSE) -> int:
        """Cycles from a step's first issue until its weights are taken over, and the next may be gathered.

        A window's step begins ``window_reads`` - 1 cycles later.
        """
        if kind in (StepKind.BINARY, StepKind.STOCHASTIC):
            return WeightLoader.rows_taken(config, kind)
        return (TileSequencer.LATENCY + InputBuffer.LATENCY + MacArray.align(config)
                + (config.window_reads - 1 if kind == StepKind.WINDOW else 0))

    @classmethod
    def min_step(cls, config: NpuConfig) -> int:
        most = max(cls.handover(config, kind) for kind in StepKind if not kind.unit or getattr(config, kind.unit))
        return max(most + 1, Accumulators.HAZARD)

    @staticmethod
    def sums_latency(config: NpuConfig) -> int:
        """Cycles from the input buffer's data to the sums: of the slower unit, the other one waits."""
        return max(MacArray.latency(config), BinaryUnit.shortest_latency(config) if config.binary_rows else 0)

    @classmethod
    def stream_lag(cls, config: NpuConfig) -> int:
        """Cycles by which sums of streams come later than others; they wait for those where these are slower."""
        return max(0, StochasticWords.shortest_latency(config) - cls.sums_latency(config))

    @classmethod
    def distance(cls, config: NpuConfig) -> int:
        """Cycles between the last issue of a COMPUTE and another kind's becoming the running instruction.

        So an earlier word is in the accumulators before a later one is read.
        """
        lags = [config.window_reads - 1 if config.depthwise else 0]
        if config.stochastic_rows:
            lags.append(cls.stream_lag(config))
        return max(lags) + Accumulators.HAZARD - 2

    def _later_streams(self, m: Module, issued: Signal) -> tuple[Signal, list[Signal]]:
        """Issues as their sums come, those of streams `stream_lag` cycles later; and the registers for it."""
        stages = issue_stages(m, self.config, issued, self.stream_lag(self.config), "stream")
        if len(stages) == 1:
            return issued, []
        later = Signal(WordIssue(self.config), name="later")
        m.d.comb += Value.cast(later).eq(Mux(stages[-1].stochastic, stages[-1], issued))
        with m.If(issued.stochastic & ~stages[-1].stochastic):
            m.d.comb += later.eq(0)
        return later, stages[1:]

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.sequencer = sequencer = TileSequencer(
            config, min_step=self.min_step(config), distance=self.distance(config))
        m.submodules.buffer = buffer = InputBuffer(config)
        m.submodules.weights = loader = WeightLoader(config, taken=self.handover(config))
        m.submodules.array = array = MacArray(config)
        accumulators, = self.accumulators
        m.submodules.accumulators = accumulators
        m.submodules.pool = pool = PoolUnit(config)

        connect_shared(m, self, sequencer, *TileSequencer.SHARED)
        connect(m, flipped(self.weights), loader.beats)
        connect(m, pool.output, flipped(self.pooled))
        for port in ("fill_valid", "fill_kinds", "fill_group"):
            m.d.comb += getattr(loader, port).eq(getattr(sequencer, port))
        connect(m, flipped(self.write), buffer.write)
        for port in ("read_enable", "read_bank", "read_address"):
            m.d.comb += getattr(accumulators, port).eq(getattr(self, port))
        m.d.comb += [
            loader.level.eq(self.weights_level),
            sequencer.weights_ready.eq(loader.ready),
            sequencer.pool_ready.eq(pool.ready),
            buffer.read_address.eq(sequencer.address),
            self.read_data.eq(accumulators.read_data),
        ]

        # Stage 0 is the cycle of the buffer's address; the sums of stage 0's word appear at stage ``sums_stage``.
        # ``found`` goes with the pixels, ``words`` with the sums. Pixels are there at ``pixels_stage``, and in the
        # multipliers' rows at ``rows_stage``.
        pixels_stage = InputBuffer.LATENCY
        rows_stage = pixels_stage + MacArray.align(config)
        sums_stage = InputBuffer.LATENCY + self.sums_latency(config)
        address_stage = sums_stage - Accumulators.READ_AHEAD

        reads = issue_stages(m, config, sequencer.issue, pixels_stage, "read")
        found = reads[-1]
        issued = sequencer.issue
        streams: list[Signal] = []
        if config.depthwise:
            # A window's word is complete when its last read is there.
            windows = issue_stages(m, config, issued, config.window_reads - 1, "window")
            issued = Signal(WordIssue(config))
            m.d.comb += Value.cast(issued).eq(Mux(windows[-1].window, windows[-1], sequencer.issue))
            with m.If(sequencer.issue.window & ~windows[-1].window):
                m.d.comb += issued.eq(0)
        if config.stochastic_rows:
            issued, streams = self._later_streams(m, issued)
        words = issue_stages(m, config, issued, address_stage + Accumulators.LATENCY, "stage")
        written = words[address_stage]

        sums, carries = array.sums, array.carries
        if config.binary_rows:
            m.submodules.binary = binary = BinaryUnit(config, latency=self.sums_latency(config))
            before = words[sums_stage - 1]
            m.d.sync += binary.swap.eq((before.turn + before.lane)[0] if config.pixel_lanes > 1 else 0)
            m.d.comb += [
                binary.pixels.eq(buffer.read_data),
                binary.zeros.eq(buffer.read_zero),
                binary.first_bank.eq(words[pixels_stage].turn + words[pixels_stage].lane),
                binary.weights.eq(loader.rows),
                binary.weight_parities.eq(loader.row_parities),
                binary.load.eq(words[pixels_stage].step_start & words[pixels_stage].binary),
                binary.take.eq(words[sums_stage].take),
                array.clear_weights.eq(words[rows_stage].step_start & words[rows_stage].binary),
            ]
            for cycle in range(MacArray.latency(config), self.sums_latency(config)):
                late_sums = Signal.like(sums, name=f"sums{cycle}", reset_less=True)
                late_carries = Signal.like(carries, name=f"carries{cycle}", reset_less=True)
                m.d.sync += [late_sums.eq(sums), late_carries.eq(carries)]
                sums, carries = late_sums, late_carries
            # Of the two only one is not zero.
            either = Signal.like(sums, name="either")
            m.d.comb += [total.eq(sums[lane] | binary.counts[lane]) for lane, total in enumerate(either)]
            sums = either

        # A cycle ahead of the weights' being copied; for the multipliers that is known another one ahead. Rows of the
        # binary unit belong to words that are neither windows nor streams, so they are seen in front of those.
        copies, before = Signal(), words[rows_stage - 2]
        units = (("binary", config.binary_rows), ("stochastic", config.stochastic_rows))
        m.d.sync += copies.eq(before.step_start & ~Cat(before[name] for name, rows in units if rows).any())
        release = copies
        if config.binary_rows:
            of_rows = reads[pixels_stage - 1]
            release = release | (of_rows.step_start & of_rows.binary)
        if config.stochastic_rows:
            m.submodules.stochastic = stochastic = StochasticWords(
                config, latency=self.sums_latency(config) + self.stream_lag(config))
            start, cleared = reads[pixels_stage - 1], words[rows_stage]
            taken = issue_stages(m, config, start, StochasticWords.weights_taken(config), "taken")[-1]
            release = release | (taken.step_start & taken.stochastic)
            m.d.comb += [
                sequencer.stream_shift.eq(self.stream_shift),
                stochastic.start.eq(start.word_start),
                stochastic.length.eq(start.length),
                stochastic.made.eq(start.made),
                stochastic.pixels.eq(buffer.read_data),
                stochastic.first_bank.eq(found.turn + found.lane),
                stochastic.load.eq(found.step_start & found.stochastic),
                stochastic.weights.eq(loader.stochastic_weights),
                stochastic.take.eq(words[sums_stage].stochastic_take),
            ]
            with m.If(cleared.step_start & cleared.stochastic):
                m.d.comb += array.clear_weights.eq(1)
            joined = Signal(accumulators.sums.shape(), name="joined")
            m.d.comb += [total.eq(sums[lane] | stochastic.sums[lane]) for lane, total in enumerate(joined)]
            sums = joined
        m.d.comb += loader.release.eq(release)

        activations = Value.cast(buffer.read_data)
        if config.activation_bits > 8:      # the pool unit takes the int8 that they are in plain tiles
            activations = Cat(activations.word_select(number, config.activation_bits)[:8]
                              for number in range(config.banks * config.ic_lanes))
        m.d.comb += [
            array.pixels.eq(buffer.read_data),
            array.turn.eq(found.turn),
            array.weights.eq(loader.weights),
            array.indices.eq(loader.indices),
            array.load_indices.eq(words[rows_stage - 1].step_start),
            array.load_weights.eq(words[rows_stage].step_start),

            accumulators.enable.eq(written.gemm),
            accumulators.first.eq(written.first),
            accumulators.bank.eq(written.bank),
            accumulators.address.eq(written.acc_address),
            accumulators.sums.eq(sums),
            accumulators.carries.eq(carries),
            self.post_store.eq(words[-1].post_store),

            pool.enable.eq(found.pool),
            pool.start.eq(found.window_start),
            pool.end.eq(found.window_end),
            pool.maximum.eq(found.maximum),
            pool.pixel_bank.eq(found.lane + found.turn),
            Value.cast(pool.pixels).eq(activations),
        ]
        if config.depthwise:
            m.d.comb += [
                array.source.part.eq(words[pixels_stage + 1].lane[-1]),
                array.source.spread.eq(words[pixels_stage + 1].spread),
                array.source.window.eq(words[pixels_stage + 1].window),
                array.source.alternate.eq(words[pixels_stage + 1].alternate),
            ]
        if Accumulators.split(config):
            m.d.comb += [
                accumulators.upper_enable.eq(written.upper_gemm),
                accumulators.upper_address.eq(written.upper_address),
            ]
        # A window's step can start with a word that only the upper group has, and end with one that neither has.
        in_flight = 0
        for stage in [*reads[1:], *words[1:], *(windows if config.depthwise else []), *streams]:
            in_flight = in_flight | stage.gemm | stage.pool | stage.step_start | stage.post_store
        at_work = Signal()
        m.d.comb += at_work.eq(~sequencer.idle | in_flight)
        m.d.sync += self.idle.eq(~at_work & pool.idle)
        if self.paired:
            m.d.sync += self.working.eq(at_work)
            word = written.gemm | (written.upper_gemm if Accumulators.split(config) else 0)
            m.d.comb += self.computed.eq(Cat(word & ~written.bank, word & written.bank))
        return m
