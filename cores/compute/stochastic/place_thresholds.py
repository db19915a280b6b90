"""Place thresholds: uGEMM's thresholds of weights, which follow the bits of one activation."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from ...arch.stochastic import MAX_LENGTH_LOG, Circuit, Sequence
from ...lib.component import Component
from .logic import sequence_numbers
from .stream_source import StreamSource

__all__ = ["PlaceThresholds"]

_BITS = StreamSource.threshold_bits(Circuit.UGEMM)


class PlaceThresholds(Component):
    """The threshold that a weight's bit is made with, by how many ones or zeros its activation's stream had so far.

    Latency 1, a bit a cycle. Golden model: ``sim.stochastic.circuits``, uGEMM.
    """

    def __init__(self):
        super().__init__({
            "bit": In(1),           # of the activation
            "valid": In(1),         # there is one
            "first": In(1),         # it is the word's first
            "mask": In(_BITS),      # ones that every threshold of this length has
            "threshold": Out(_BITS),  # for the weights' bits
            "activation": Out(1),   # ``bit``, beside it
        })

    def elaborate(self, platform):
        m = Module()
        # A number is that of a place, so only the place that is wanted is turned into one.
        ones, zeros = Signal(MAX_LENGTH_LOG), Signal(MAX_LENGTH_LOG)
        place = Mux(self.first, 0, Mux(self.bit, ones, zeros))
        with m.If(self.valid):
            m.d.sync += [ones.eq(Mux(self.first, 0, ones) + self.bit), zeros.eq(Mux(self.first, 0, zeros) + ~self.bit)]
        number, = sequence_numbers(place, Sequence.ACTIVATIONS, bits=1)
        m.d.sync += [self.threshold.eq(number[MAX_LENGTH_LOG - _BITS:] | self.mask), self.activation.eq(self.bit)]
        return m
