"""Store engine: accumulators or pooled windows -> requantise, add -> beats for the write engine."""

import functools
import operator

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect, flipped

from ..arch.isa import Queue, loads
from ..arch.numerics import POOL_WIDTH
from ..arch.registers import REGION_BITS
from ..buffers.input_buffer import kept_port
from ..bus.axi import write_run_layout
from ..config import NpuConfig, part_of
from ..control.engine_port import EnginePort, connect_shared
from ..lib.component import Component
from ..lib.fifo import Fifo
from ..timing.store import StoreEngineTiming
from .chain import chain_name, keeps_word
from .channel_parameters import ChannelParameters
from .narrow.narrow_requantizer import NarrowRequantizer
from .parts import beats_of, targets_of, turns_of
from .requantizer import Requantizer
from .stages.staged_requantizer import StagedRequantizer
from .store_runs import StoreRuns
from .store_sequencer import StoreSequencer
from .store_stage import stages_of

__all__ = ["StoreEngine"]


class StoreEngine(StoreEngineTiming, Component):
    """Executes the store queue. docs/datapath.md has its pipeline, cycles and area.

    Beats go to the write engine, those of local STOREs to the input buffer (`RunTargets`).

    Rate: a pixel of a block (a beat) a cycle, one in three cycles with a second stage (in two if it is STORE_LEAKY)
    unless that has multipliers of its own (`OwnTurns`), in nine of Winograd tiles. A pixel sets out only when the
    buffer after the requantizer has room for it, so nothing in the pipeline ever stops. ``read_data`` is read the cycle
    after ``read_enable``. Golden models:
    ``sim.golden.requantize``, ``sim.golden.winograd_output``, ``sim.store_operations`` and ``sim.signs.pack_map``.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            # Tokens of a STORE for loads are given by the write engine.
            **EnginePort(Queue.STORE, without=("post_load",)).members,
            "read_enable": Out(1),           # read a word of sums
            "read_bank": Out(1),             # from this accumulator bank
            "read_address": Out(range(config.acc_depth)),  # at this place
            # The word, a cycle later and until the next is read.
            "read_data": In(data.ArrayLayout(signed(config.acc_width), config.acc_lanes)),
            "pooled": In(stream.Signature(data.ArrayLayout(signed(POOL_WIDTH), config.ic_lanes))),  # windows' results
            "side": In(stream.Signature(config.beat_bits)),  # from the side ring: parameters, residuals
            **turns_of(config).PORTS,
            "run": Out(stream.Signature(write_run_layout(config))),  # where the next beats go, for the write engine
            "data": Out(stream.Signature(config.beat_bits)),  # those beats
            **kept_port(config, Out),        # beats of local STOREs, to the input buffer
            "write_start": In(REGION_BITS),  # first beat of the data region that may be written
            "data_beats": In(REGION_BITS),   # size of the data region
            "data_address": In(config.address_width),  # its bus address
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.sequencer = sequencer = StoreSequencer(config)
        m.submodules.parameters = parameters = ChannelParameters(config)
        kind_of_requantizer = part_of(
            config, Requantizer, {"store_multipliers": StagedRequantizer, "store_lanes": NarrowRequantizer})
        m.submodules.requantizer = requantizer = kind_of_requantizer(config)
        m.submodules.runs = runs = StoreRuns(config)
        m.submodules.buffer = buffer = Fifo(width=config.beat_bits, depth=self.BUFFER_BEATS)

        connect_shared(m, self, sequencer, *StoreSequencer.SHARED)
        connect(m, runs.run, flipped(self.run))
        for port in ("write_start", "data_beats", "data_address"):
            m.d.comb += getattr(runs, port).eq(getattr(self, port))
        issue, store = sequencer.issue, sequencer.store
        # Stands until the next is taken: a Winograd pixel's is taken with its first word, and wanted with its last; one
        # for a whole block is taken with its first pixel.
        residual = Signal(config.beat_bits, reset_less=True)
        with m.If(sequencer.take_residual):
            m.d.sync += residual.eq(self.side.payload)
        side_ready = parameters.beats.ready | sequencer.take_residual
        results, results_come = requantizer.output, requantizer.output_valid
        form = beats_of(config)
        loading = 0     # stages that load, so far
        joined: list[Value] = []    # a value was none of a beat's last
        for stage in (kind(config) for kind in stages_of(config)):
            name = chain_name(stage.OPCODE)
            m.submodules[name] = stage
            m.d.comb += [
                stage.use.eq(sequencer.chain[name]),
                stage.values.eq(results),
                stage.valid.eq(results_come),
                *([stage.word.eq(sequencer.chain[f"{name}_word"])] if keeps_word(stage.OPCODE) else []),
            ]
            if loads(stage.OPCODE):
                m.d.comb += [
                    stage.enable.eq(sequencer.load_wanted[loading]),
                    stage.beats.valid.eq(self.side.valid),
                    stage.beats.payload.eq(self.side.payload),
                    sequencer.loaded[loading].eq(stage.loaded),
                ]
                side_ready = side_ready | stage.beats.ready
                loading += 1
            if stage.VALUES > 1:
                m.d.comb += getattr(runs, name).eq(sequencer.chain[name])
                joined.append(stage.packed)
            results, results_come = stage.output, stage.output_valid
        m.d.comb += [
            sequencer.side_valid.eq(self.side.valid),
            *(getattr(sequencer, name).eq(getattr(self, name)) for name in turns_of(config).PORTS),
            sequencer.pooled_valid.eq(self.pooled.valid),

            runs.start.eq(sequencer.runs_start),
            runs.geometry.eq(sequencer.geometry),
            *form.connect_runs(sequencer.chain, runs),
            runs.store.eq(store),
            runs.index.eq(sequencer.index),
            runs.halt.eq(self.halt),
            sequencer.runs_idle.eq(runs.idle),
            sequencer.runs_failed.eq(runs.failed),

            # The side ring carries a block's parameters, then its residuals. Both are taken by registers alone.
            parameters.enable.eq(sequencer.parameters_wanted),
            parameters.beats.valid.eq(self.side.valid),
            parameters.beats.payload.eq(self.side.payload),
            parameters.release.eq(requantizer.released),
            sequencer.parameters_loaded.eq(parameters.loaded),
            self.side.ready.eq(side_ready),
            self.pooled.ready.eq(sequencer.pooled_ready),

            self.read_enable.eq(sequencer.read),
            self.read_bank.eq(store.bank),
            requantizer.issue.eq(issue),
            requantizer.accumulators.eq(self.read_data),
            requantizer.pooled.eq(self.pooled.payload),
            requantizer.residual.eq(residual),
            requantizer.channels.eq(parameters.channels),
            requantizer.chain.eq(sequencer.chain),

            buffer.w_en.eq(results_come),
            buffer.w_data.eq(Value.cast(results)),
            self.data.payload.eq(buffer.r_data),
        ]
        targets_of(config).take_beats(m, self, runs, buffer, sequencer)

        # Beats under way or in the buffer. Those that leave count a cycle later. Of the values of a beat of signs or of
        # maxima only the last one counts.
        beats = Signal(range(self.BUFFER_BEATS + 1), name="beats")
        full, left, packed = (Signal(name=name) for name in ("full", "left", "packed"))
        m.d.sync += left.eq(buffer.r_rdy & buffer.r_en)
        form.packed(m, requantizer, packed)
        packed = functools.reduce(operator.or_, joined, packed)
        taken = form.takes_place(issue)
        more_room = form.leaves_room(issue)
        m.d.comb += [
            sequencer.room.eq(left | packed | ~full),
            sequencer.room_behind.eq(functools.reduce(
                operator.or_, more_room, left | packed | (beats != self.BUFFER_BEATS - 1))),
        ]
        m.d.sync += [
            beats.eq((beats - (left + packed))[:len(beats)] + taken),
            full.eq(Mux(issue.valid, ~sequencer.room_behind, ~sequencer.room)),
            sequencer.drained.eq(beats == 0),
        ]
        return m
