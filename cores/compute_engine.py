"""Compute engine: sequencer, input buffer, multiplier array, accumulators and pool unit."""

from amaranth.hdl import Module, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .accumulators import Accumulators
from .axi import ErrorReport
from .config import NpuConfig
from .input_buffer import InputBuffer, buffer_address_bits
from .instruction_layout import INDEX_BITS, QueueEntry
from .mac_array import MacArray
from .numerics import POOL_WIDTH
from .pool_unit import PoolUnit
from .tile_sequencer import IssueLayout, TileSequencer
from .weight_loader import WeightLoader

__all__ = ["ComputeEngine"]


class ComputeEngine(wiring.Component):
    """Executes the compute queue. docs/datapath.md has its pipeline, cycles and area.

    Rate: one word of ``pixel_lanes`` pixels a cycle; a step takes at least ``min_step(config)`` cycles and as long as
    its weights need. Golden models: ``sim.golden.conv2d_accumulate``, ``sim.golden.pool_accumulate``.
    """

    #: Cycles from a step's first issue until the weight loader may gather the next: issue, memory, indices, weights.
    HANDOVER = 4

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "queue": In(stream.Signature(QueueEntry)),
            "load_level": In(8),
            "load_take": Out(8),
            "store_level": In(8),
            "store_take": Out(8),
            "post_load": Out(1),
            "post_store": Out(1),
            "write_enable": In(config.pixel_lanes),
            "write_address": In(buffer_address_bits(config)),
            "write_data": In(config.beat_bits),
            "weights": In(stream.Signature(config.beat_bits)),
            "pooled": Out(stream.Signature(data.ArrayLayout(signed(POOL_WIDTH), config.ic_lanes))),
            "read_enable": In(1),
            "read_bank": In(1),
            "read_address": In(range(config.acc_depth)),
            "read_data": Out(data.ArrayLayout(signed(config.acc_width), config.acc_lanes)),
            "state": Out(4),
            "index": Out(INDEX_BITS),
            "error": Out(ErrorReport),
            "idle": Out(1),
            "halt": In(1),
        })

    @classmethod
    def min_step(cls, config: NpuConfig) -> int:
        return max(cls.HANDOVER, Accumulators.HAZARD)

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.sequencer = sequencer = TileSequencer(config, min_step=self.min_step(config))
        m.submodules.buffer = buffer = InputBuffer(config)
        m.submodules.weights = loader = WeightLoader(config)
        m.submodules.array = array = MacArray(config)
        m.submodules.accumulators = accumulators = Accumulators(config)
        m.submodules.pool = pool = PoolUnit(config)

        connect(m, flipped(self.queue), sequencer.queue)
        connect(m, flipped(self.weights), loader.beats)
        connect(m, pool.output, flipped(self.pooled))
        for port in ("load_level", "store_level", "halt"):
            m.d.comb += getattr(sequencer, port).eq(getattr(self, port))
        for port in ("load_take", "store_take", "post_load", "state", "index", "error"):
            m.d.comb += getattr(self, port).eq(getattr(sequencer, port))
        for port in ("fill_valid", "fill_indexed", "fill_group"):
            m.d.comb += getattr(loader, port).eq(getattr(sequencer, port))
        for port in ("write_enable", "write_address", "write_data"):
            m.d.comb += getattr(buffer, port).eq(getattr(self, port))
        for port in ("read_enable", "read_bank", "read_address"):
            m.d.comb += getattr(accumulators, port).eq(getattr(self, port))
        m.d.comb += [
            sequencer.weights_ready.eq(loader.ready),
            sequencer.pool_ready.eq(pool.ready),
            buffer.read_address.eq(sequencer.address),
            self.read_data.eq(accumulators.read_data),
        ]

        # Stage 0 is the cycle of the buffer's address; the sums of stage 0's word appear at stage ``sums_stage``.
        sums_stage = 1 + MacArray.latency(config)
        address_stage = sums_stage - Accumulators.READ_AHEAD
        stages = [sequencer.issue]
        for number in range(address_stage + Accumulators.LATENCY):
            stage = Signal(IssueLayout(config), name=f"stage{number + 1}")
            m.d.sync += Value.cast(stage).eq(stages[-1])
            stages.append(stage)

        m.d.comb += [
            array.pixels.eq(buffer.read_data),
            array.swap.eq(stages[1].swap),
            array.weights.eq(loader.weights),
            array.indices.eq(loader.indices),
            array.load_indices.eq(stages[1].step_start),
            array.load_weights.eq(stages[2].step_start),
            loader.release.eq(stages[2].step_start),

            accumulators.enable.eq(stages[address_stage].gemm),
            accumulators.first.eq(stages[address_stage].first),
            accumulators.bank.eq(stages[address_stage].bank),
            accumulators.address.eq(stages[address_stage].acc_address),
            accumulators.sums.eq(array.sums),
            accumulators.carries.eq(array.carries),
            self.post_store.eq(stages[-1].post_store),

            pool.enable.eq(stages[1].pool),
            pool.start.eq(stages[1].window_start),
            pool.end.eq(stages[1].window_end),
            pool.maximum.eq(stages[1].maximum),
            pool.pixel_bank.eq(stages[1].lane ^ stages[1].swap),
            pool.pixels.eq(buffer.read_data),
        ]
        in_flight = 0
        for stage in stages[1:]:
            in_flight = in_flight | stage.gemm | stage.pool
        m.d.comb += self.idle.eq(sequencer.idle & ~in_flight & pool.idle)
        return m
