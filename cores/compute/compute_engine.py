"""Compute engine: sequencer, input buffer, multiplier array, accumulators and pool unit."""

from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..arch.isa import Queue
from ..arch.numerics import POOL_WIDTH
from ..buffers.accumulators import Accumulators
from ..buffers.input_buffer import BufferWrite, InputBuffer
from ..config import NpuConfig
from ..control.engine_port import EnginePort, connect_shared, setting_ports
from ..lib.component import Component
from ..timing.compute import ComputeEngineTiming
from .array_unit import ArrayUnit, units_of
from .mac_array import MacArray
from .tile_sequencer import TileSequencer
from .weight_loader import WeightLoader
from .word_kind import issue_stages
from .word_parts import pool_of, word_kinds

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
        **setting_ports(Queue.COMPUTE, config, In),
    }


class ComputeEngine(ComputeEngineTiming, Component):
    """Executes the compute queue. docs/datapath.md has its pipeline, cycles and area.

    Rate: one word of ``pixel_lanes`` pixels a cycle, one of streams in as many as they are made in; a step takes at
    least ``min_step(config)`` cycles and as long as its weights need. Golden models: ``sim.golden.conv2d_accumulate``,
    ``sim.golden.pool_accumulate``, ``sim.stochastic.circuits``.

    ``paired``: it stands beside another engine and tells what that has to know.
    """

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

    def _units(self, latency: int) -> list[ArrayUnit]:
        """The units beside the array, whose sums come ``latency`` cycles after the pixels, or later if they lag."""
        return [unit(self.config, latency=latency + (self.lag(self.config) if unit.LAGS else 0))
                for unit in units_of(self.config)]

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
        m.submodules.pool = pool = pool_of(config)

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

        m.d.comb += [getattr(sequencer, name).eq(getattr(self, name))
                     for name in setting_ports(Queue.COMPUTE, config, In)]

        # Stage 0 is the cycle of the buffer's address; the sums of stage 0's word appear at stage ``sums_stage``.
        # ``found`` goes with the pixels, ``words`` with the sums. Pixels are there at ``pixels_stage``, and in the
        # multipliers' rows at ``rows_stage``.
        pixels_stage = InputBuffer.LATENCY
        rows_stage = pixels_stage + MacArray.align(config)
        sums_stage = InputBuffer.LATENCY + self.sums_latency(config)
        address_stage = sums_stage - Accumulators.READ_AHEAD

        reads = issue_stages(m, sequencer.issue, pixels_stage, "read")
        found = reads[-1]
        issued = sequencer.issue
        late: list[Any] = []    # words that come later than others
        for kind in word_kinds(config):
            issued, stages = kind.follow(m, issued)
            late += stages
        words = issue_stages(m, issued, address_stage + Accumulators.LATENCY, "stage")
        written = words[address_stage]

        units = self._units(self.sums_latency(config))
        sums, carries = array.sums, array.carries
        for cycle in range(MacArray.latency(config), self.sums_latency(config)):
            late_sums = Signal.like(sums, name=f"sums{cycle}", reset_less=True)
            late_carries = Signal.like(carries, name=f"carries{cycle}", reset_less=True)
            m.d.sync += [late_sums.eq(sums), late_carries.eq(carries)]
            sums, carries = late_sums, late_carries

        # A cycle ahead of the weights' being copied; for the multipliers that is known another one ahead. Words of
        # other units are not windows, so they are seen in front of those.
        copies, before, cleared = Signal(), words[rows_stage - 2], words[rows_stage]
        of_units = Cat(before[unit.KIND.name.lower()] for unit in units)
        m.d.sync += copies.eq(before.step_start & ~of_units.any())
        m.d.comb += loader.release.eq(Cat(copies, *(unit.release for unit in units)).any())
        for unit in units:
            m.submodules[unit.KIND.name.lower()] = unit
            m.d.comb += [
                unit.following.eq(reads[pixels_stage - 1]),
                unit.word.eq(found),
                Value.cast(unit.pixels).eq(buffer.read_data),
                unit.rows.eq(loader.rows(unit.KIND)),
                unit.row_taken.eq(loader.row_taken),
                unit.finishing.eq(words[sums_stage - 1]),
                *([unit.zeros.eq(buffer.read_zero)] if "zeros" in unit.signature.members else []),
            ]
            with m.If(unit.starts(cleared)):
                m.d.comb += array.clear_weights.eq(1)
        if units:
            # Of all of them only one is not zero.
            joined = Signal(accumulators.sums.shape(), name="joined")
            for lane, total in enumerate(joined):
                either = sums[lane]
                for unit in units:
                    either = either | unit.sums[lane]
                m.d.comb += total.eq(either)
            sums = joined

        # The pool unit takes the int8 that they are in plain tiles.
        activations = Cat(Value.cast(buffer.read_data).word_select(number, config.activation_bits)[:8]
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
            *pool.follow(found, sequencer),
        ]
        m.d.comb += array.sources.follow(array, words[pixels_stage + 1])
        if Accumulators.split(config):
            m.d.comb += [
                accumulators.upper_enable.eq(written.upper_gemm),
                accumulators.upper_address.eq(written.upper_address),
            ]
        # A window's step can start with a word that only the upper group has, and end with one that neither has.
        in_flight = 0
        for stage in [*reads[1:], *words[1:], *late]:
            in_flight = in_flight | stage.gemm | stage.pool | stage.step_start | stage.post_store
        at_work = Signal()
        m.d.comb += at_work.eq(~sequencer.idle | in_flight)
        m.d.sync += self.idle.eq(~at_work & pool.idle)
        if self.paired:
            m.d.sync += self.working.eq(at_work)
            word = written.gemm | (written.upper_gemm if Accumulators.split(config) else 0)
            m.d.comb += self.computed.eq(Cat(word & ~written.bank, word & written.bank))
        return m
