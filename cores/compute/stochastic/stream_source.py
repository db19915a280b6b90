"""Stream source: what the streams of all lanes are made with."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from ...arch.stochastic import MAX_LENGTH_LOG, Circuit, Sequence
from ...lib.component import Component
from ...timing.stochastic import StreamSourceTiming
from .logic import sequence_numbers

__all__ = ["LogShape", "StreamSelect", "StreamSource"]

#: Of the logarithm of a length.
LogShape = range(MAX_LENGTH_LOG + 1)


class StreamSelect(data.StructLayout):
    """What the select sequence says of ``bits`` stream bits: ``choose`` one of two streams, one of ``inputs``."""

    def __init__(self, *, inputs: int, bits: int):
        super().__init__({"choose": bits, "inputs": data.ArrayLayout(range(inputs), bits)})


class StreamSource(StreamSourceTiming, Component):
    """Counts the bits of words, ``bits`` a cycle, and makes the thresholds of the shared sequences for them.

    A word starts with ``start`` and has 2**``made`` / ``bits`` cycles; the next may start with its last one counted, so
    many cycles later. The first thresholds come `LATENCY` cycles after ``start``, with ``first``; ``last`` is with the
    last ones. Golden model: ``sim.stochastic.streams.Streams``.

    Raises ValueError unless ``bits`` is 1, 2, 4 or 8, and 1 for a serial circuit.
    """

    def __init__(self, *, circuit: Circuit, inputs: int, bits: int):
        if bits not in (1, 2, 4, 8):
            raise ValueError(f"bits must be 1, 2, 4 or 8, not {bits!r}")
        if circuit.serial and bits != 1:
            raise ValueError(f"bits must be 1 with {circuit.label}, whose bits depend on those before, not {bits!r}")
        self.circuit, self.inputs, self.bits = circuit, inputs, bits
        thresholds = data.ArrayLayout(self.threshold_bits(circuit), bits)
        super().__init__({
            "start": In(1),           # a word's bits begin
            "length": In(LogShape),   # with ``start``: logarithm of its streams' length
            "made": In(LogShape),     # with ``start``: logarithm of the bits that are made of them
            "fresh": Out(1),          # a cycle after ``start``
            "valid": Out(1),          # there are thresholds
            "first": Out(1),          # they are the word's first
            "last": Out(1),           # they are its last
            "activations": Out(thresholds),  # of activations, for each bit of the cycle
            "weights": Out(thresholds),      # of weights
            "mask": Out(self.threshold_bits(circuit)),  # ones that every threshold of this length has
            "select": Out(StreamSelect(inputs=inputs, bits=bits)),  # which streams are looked at
        })

    @staticmethod
    def threshold_bits(circuit: Circuit) -> int:
        """Of a magnitude up to 128 or of a value plus 128; thresholds are below the largest."""
        return 8 if circuit.bipolar else 7

    def elaborate(self, platform):
        m = Module()
        bits, width = self.bits, self.threshold_bits(self.circuit)
        step = (bits - 1).bit_length()
        index = Signal(MAX_LENGTH_LOG - step)
        left = Signal.like(index)           # cycles of the word after this one
        running = Signal()
        mask, mask_now = Signal(width), Signal(width)
        with m.Switch(self.length):
            for length in range(width - 1):
                with m.Case(length):
                    m.d.comb += mask_now.eq((1 << width - 1 - length) - 1)
        m.d.sync += self.fresh.eq(self.start)
        with m.If(self.start):
            m.d.sync += [running.eq(1), index.eq(0), left.eq(((1 << self.made) - 1)[step:]), mask.eq(mask_now)]
        with m.Else():
            m.d.sync += [running.eq(running & (left != 0)), index.eq(index + 1), left.eq(Mux(left != 0, left - 1, 0))]

        def upper(number):
            return number[MAX_LENGTH_LOG - width:] | mask

        # The mask beside the thresholds is after their registers too.
        m.d.sync += [
            self.valid.eq(running), self.first.eq(self.fresh), self.last.eq(running & (left == 0)), self.mask.eq(mask)]
        for sequence, port in ((Sequence.ACTIVATIONS, self.activations), (Sequence.WEIGHTS, self.weights)):
            m.d.sync += [port[bit].eq(upper(number))
                         for bit, number in enumerate(sequence_numbers(index, sequence, bits=bits))]
        for bit, number in enumerate(sequence_numbers(index, Sequence.SELECT, bits=bits)):
            taken = (self.inputs - 1).bit_length()
            m.d.sync += [self.select.choose[bit].eq(number[-1]),
                         self.select.inputs[bit].eq(number[MAX_LENGTH_LOG - taken:])]
        return m
