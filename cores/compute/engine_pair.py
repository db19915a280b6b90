"""Engine pair: a compute engine and a binary engine that share the compute queue."""

import dataclasses

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.wiring import connect, flipped

from ..arch.instruction_layout import instruction_layout, is_kind, is_operation
from ..arch.isa import Opcode, StepKind
from ..arch.registers import STATE_CODES
from ..config import NpuConfig
from ..lib.component import Component
from ..timing.compute import EnginePairTiming
from .binary.binary_engine import BinaryEngine
from .compute_engine import ComputeEngine, compute_ports

__all__ = ["EnginePair"]

_STATE = STATE_CODES["compute"]


class EnginePair(EnginePairTiming, Component):
    """Executes the compute queue with two engines: binary COMPUTEs on a `BinaryEngine`, all else on the other.

    In order: an instruction goes to an engine when the other has finished, a COMPUTE_SET to both. So only one of them
    wants weights, and tokens need no order. Writes go to both input buffers; a read of a bank is of the engine that
    was the last to compute into it.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        without = dataclasses.replace(config, binary_rows=0, binary_engine=0)
        self.array = ComputeEngine(without, paired=True)
        self.binary = BinaryEngine(config)
        #: Where the sums of either are.
        self.accumulators = self.array.accumulators + self.binary.accumulators
        super().__init__(compute_ports(config))

    def elaborate(self, platform):
        m = Module()
        m.submodules.array = array = self.array
        m.submodules.binary = binary = self.binary
        engines = array, binary

        # -- the queue ----------------------------------------------------------------------------------------------
        word = self.queue.p.word
        looked, is_set, is_binary = Signal(name="looked"), Signal(name="is_set"), Signal(name="is_binary")
        to_binary = Signal()        # the last instruction went there
        other_works = Signal()
        m.d.sync += [
            looked.eq(self.queue.valid & ~self.queue.ready),
            is_set.eq(is_operation(word, Opcode.COMPUTE_SET, self.config)),
            is_binary.eq(is_operation(word, Opcode.COMPUTE, self.config)
                         & is_kind(instruction_layout(Opcode.COMPUTE)(word).kind, StepKind.BINARY, self.config)),
        ]
        m.d.comb += [
            other_works.eq(Mux(is_binary, array.working, ~binary.idle)),
            array.queue.payload.eq(self.queue.payload),
            binary.queue.payload.eq(self.queue.payload),
        ]
        with m.If(is_set):
            m.d.comb += [
                array.queue.valid.eq(looked & binary.queue.ready),
                binary.queue.valid.eq(looked & array.queue.ready),
                self.queue.ready.eq(looked & array.queue.ready & binary.queue.ready),
            ]
        with m.Elif(~other_works):
            m.d.comb += [
                array.queue.valid.eq(looked & ~is_binary),
                binary.queue.valid.eq(looked & is_binary),
                self.queue.ready.eq(looked & Mux(is_binary, binary.queue.ready, array.queue.ready)),
            ]
            with m.If(self.queue.ready):
                m.d.sync += to_binary.eq(is_binary)

        # -- tokens, weights, activations ---------------------------------------------------------------------------
        connect(m, array.pooled, flipped(self.pooled))
        for engine in engines:
            for port in ("load_level", "store_level", "weights_level", "halt", "read_enable", "read_bank",
                         "read_address"):
                m.d.comb += getattr(engine, port).eq(getattr(self, port))
            for port in engine.write.signature.members:
                m.d.comb += getattr(engine.write, port).eq(getattr(self.write, port))
            # Ready is the one whose instruction it is.
            m.d.comb += [
                engine.weights.valid.eq(self.weights.valid),
                engine.weights.payload.eq(self.weights.payload),
            ]
        for port in ("load_take", "store_take", "post_load", "post_store"):
            m.d.comb += getattr(self, port).eq(getattr(array, port) | getattr(binary, port))
        m.d.comb += self.weights.ready.eq(array.weights.ready | binary.weights.ready)

        # -- sums ---------------------------------------------------------------------------------------------------
        of_binary, reading = Signal(2), Signal()
        for bank in range(2):
            with m.If(array.computed[bank]):
                m.d.sync += of_binary[bank].eq(0)
            with m.Elif(binary.computed[bank]):
                m.d.sync += of_binary[bank].eq(1)
        with m.If(self.read_enable):
            m.d.sync += reading.eq(of_binary.bit_select(self.read_bank, 1))
        m.d.comb += Value.cast(self.read_data).eq(
            Mux(reading, Value.cast(binary.read_data), Value.cast(array.read_data)))

        # -- report -------------------------------------------------------------------------------------------------
        # The engines' reports are of the cycle before.
        of_last, waits = Signal(), Signal()
        state = Signal.like(self.state, name="state_before")
        m.d.sync += [of_last.eq(to_binary), waits.eq(looked & ~is_set & other_works)]
        m.d.comb += [
            state.eq(Mux(of_last, binary.state, array.state)),
            self.error.eq(Mux(array.error.valid, Value.cast(array.error), Value.cast(binary.error))),
            self.idle.eq(array.idle & binary.idle),
        ]
        m.d.sync += [self.state.eq(state), self.index.eq(Mux(of_last, binary.index, array.index))]
        # An instruction waits for the last words of the one before it.
        with m.If((state == _STATE["idle"]) & waits):
            m.d.sync += self.state.eq(_STATE["setup"])
        return m
