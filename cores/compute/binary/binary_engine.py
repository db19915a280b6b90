"""Binary engine: the binary unit with a sequencer, an input buffer and accumulators of its own."""

from amaranth.hdl import Cat, Module
from amaranth.lib.wiring import Out, connect, flipped

from ...arch.isa import StepKind
from ...buffers.accumulators import Accumulators
from ...buffers.input_buffer import InputBuffer
from ...config import NpuConfig
from ...control.engine_port import connect_shared
from ...lib.component import Component
from ..compute_engine import ComputeEngine, compute_ports
from ..tile_sequencer import TileSequencer
from ..weight_loader import WeightLoader
from ..word_kind import issue_stages
from .binary_words import BinaryWords

__all__ = ["BinaryEngine"]


class BinaryEngine(Component):
    """Executes COMPUTEs with ``binary`` and COMPUTE_SETs; it takes any other for a COMPUTE with ``binary``.

    Rate and cycles are those of a `ComputeEngine` that has the unit inside. Golden model:
    ``sim.golden.binary_sums``.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        #: Where its counts are.
        self.accumulators = (Accumulators(config),)
        super().__init__({
            **{name: port for name, port in compute_ports(config).items() if name != "pooled"},
            "computed": Out(2),  # banks that a word is being added to
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        latency = BinaryWords.shortest_latency(config)
        m.submodules.sequencer = sequencer = TileSequencer(
            config, min_step=ComputeEngine.min_step(config), distance=ComputeEngine.distance(config))
        m.submodules.buffer = buffer = InputBuffer(config)
        m.submodules.weights = loader = WeightLoader(config, taken=ComputeEngine.handover(config))
        m.submodules.unit = unit = BinaryWords(config, latency=latency)
        accumulators, = self.accumulators
        m.submodules.accumulators = accumulators

        connect_shared(m, self, sequencer, *TileSequencer.SHARED)
        connect(m, flipped(self.weights), loader.beats)
        connect(m, flipped(self.write), buffer.write)
        for port in ("read_enable", "read_bank", "read_address"):
            m.d.comb += getattr(accumulators, port).eq(getattr(self, port))

        # Stage 0 is the cycle of the buffer's address; the counts of its word appear at stage ``counts_stage``.
        counts_stage = InputBuffer.LATENCY + latency
        address_stage = counts_stage - Accumulators.READ_AHEAD
        words = issue_stages(m, sequencer.issue, address_stage + Accumulators.LATENCY, "stage")
        written = words[address_stage]
        m.d.comb += [
            sequencer.weights_ready.eq(loader.ready),
            buffer.read_address.eq(sequencer.address),
            loader.fill_valid.eq(sequencer.fill_valid),
            loader.fill_kinds.binary.eq(1),
            loader.level.eq(self.weights_level),
            loader.release.eq(unit.release),
            unit.pixels.eq(buffer.read_data),
            unit.zeros.eq(buffer.read_zero),
            unit.following.eq(words[InputBuffer.LATENCY - 1]),
            unit.word.eq(words[InputBuffer.LATENCY]),
            unit.rows.eq(loader.rows(StepKind.BINARY)),
            unit.row_taken.eq(loader.row_taken),
            unit.finishing.eq(words[counts_stage - 1]),
            *[total.eq(unit.sums[lane]) for lane, total in enumerate(accumulators.sums)],
            accumulators.enable.eq(written.gemm),
            accumulators.first.eq(written.first),
            accumulators.bank.eq(written.bank),
            accumulators.address.eq(written.acc_address),
            self.read_data.eq(accumulators.read_data),
            self.computed.eq(Cat(written.gemm & ~written.bank, written.gemm & written.bank)),
            self.post_store.eq(words[-1].post_store),
        ]
        if Accumulators.split(config):
            m.d.comb += [
                accumulators.upper_enable.eq(written.gemm),
                accumulators.upper_address.eq(written.acc_address),
            ]
        in_flight = 0
        for stage in words[1:]:
            in_flight = in_flight | stage.gemm
        m.d.sync += self.idle.eq(sequencer.idle & ~in_flight)
        return m
