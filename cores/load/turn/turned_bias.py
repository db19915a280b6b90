"""Turned bias: the zero point of the pixels in the biases of a product whose weights were turned."""

from amaranth.hdl import Cat, Const, Module, Signal, signed
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from ...arch.instruction_layout import field_shape
from ...arch.isa import Opcode
from ...arch.numerics import PARAMETER_BYTES
from ...config import NpuConfig
from ...lib.component import Component
from ...timing.turn import TurnedBiasTiming
from .corner_turn import SUM_BITS

__all__ = ["TurnedBias"]

_BIAS_BITS = 32


class TurnedBias(TurnedBiasTiming, Component):
    """Take from the bias of each channel in ``beats`` of parameters ``zero_point`` times the sum of its lane.

    A beat comes `latency` cycles later, the next is taken after it.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "begin": In(1),         # beats of another load come: its first channel is that of a group
            "group": In(field_shape(Opcode.LOAD_SIDE, "group")),  # this one, of tn lanes
            "zero_point": In(signed(8)),    # of the pixels; stands
            "beats": In(stream.Signature(config.beat_bits)),    # channel parameters
            "output": Out(stream.Signature(config.beat_bits)),  # the same with biases that have the sums
            "lane": Out(range(config.oc_lanes)),    # the sum that is wanted
            "sum": In(signed(SUM_BITS)),            # it, a cycle later
            "busy": Out(1),         # with a beat
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        channels, width = config.beat_bytes // PARAMETER_BYTES, 8 * PARAMETER_BYTES
        held = Signal(config.beat_bits, reset_less=True)
        product = Signal(signed(_BIAS_BITS), reset_less=True)
        # From the first sum that is asked for to the last bias.
        steps = Signal(channels + 2)
        m.d.comb += [
            self.beats.ready.eq(~self.busy),
            self.output.payload.eq(held),
        ]
        taken = self.beats.valid & self.beats.ready
        m.d.sync += [steps.eq(Cat(taken, steps)), product.eq((self.sum * self.zero_point)[:_BIAS_BITS].as_signed())]
        with m.If(self.begin):
            m.d.sync += self.lane.eq(Cat(Const(0, (config.ic_lanes - 1).bit_length()), self.group))
        with m.Elif(steps[:channels].any()):
            m.d.sync += self.lane.eq(self.lane + 1)
        with m.If(taken):
            m.d.sync += self.busy.eq(1)
        with m.Elif(self.output.valid & self.output.ready):
            m.d.sync += self.busy.eq(0)
        with m.If(taken):
            m.d.sync += held.eq(self.beats.payload)
        with m.Elif(steps[2:].any()):
            m.d.sync += held.eq(Cat(held[width:], (held[:_BIAS_BITS] - product)[:_BIAS_BITS], held[_BIAS_BITS:width]))
        with m.If(steps[-1]):
            m.d.sync += self.output.valid.eq(1)
        with m.Elif(self.output.ready):
            m.d.sync += self.output.valid.eq(0)
        return m
