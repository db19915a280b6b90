"""Word pace: for how many cycles a word of pixels stays, while its streams are made."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...arch.stochastic import LENGTH_BITS, MAX_LENGTH_LOG, MIN_LENGTH_LOG
from ...config import NpuConfig
from .stream_source import LogShape

__all__ = ["WordPace"]


class WordPace(wiring.Component):
    """Counts the cycles of each word of the instruction taken with ``take``; a word begins with ``begin``.

    A word of streams stays for 2**``made_log`` / ``stochastic_bits`` cycles, any other for one. A word that stays has
    ``inside`` high behind its first cycle, and ``over`` with its last; ``several`` tells such words from the others.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "take": In(1),              # an instruction begins in the next cycle
            "stochastic": In(1),        # its words are made of streams
            "length": In(LENGTH_BITS),  # as the instruction has it
            "made": In(LENGTH_BITS),    # the same
            "shift": In(LENGTH_BITS),   # both are less by so much, where they can be
            "begin": In(1),             # a word's first cycle
            "several": Out(1),          # words of the instruction stay for more than a cycle
            "inside": Out(1),           # a word has begun before
            "over": Out(1),             # this is its last cycle
            "same": Out(1),             # words of the instruction below are of this one's kind, and stay as long
            "length_log": Out(LogShape),  # logarithm of the streams' length
            "made_log": Out(LogShape),    # of what is made of them
        })

    def _shorter(self, log: Value) -> Value:
        """What is left of a length's logarithm, of `LENGTH_BITS`."""
        return Mux(log > self.shift, log - self.shift, 0)[:LENGTH_BITS]

    def elaborate(self, platform):
        m = Module()
        step = (self.config.stochastic_bits - 1).bit_length()
        behind = Signal(MAX_LENGTH_LOG - step)      # cycles of a word behind its first
        left = Signal.like(behind)
        made = Signal(LENGTH_BITS)
        streams = Signal()      # words of the instruction are made of them
        m.d.comb += [
            made.eq(self._shorter(self.made)),
            self.same.eq((self.stochastic == streams)
                         & (~streams | (made + MIN_LENGTH_LOG == self.made_log))),
        ]
        with m.If(self.take):
            m.d.sync += [
                self.length_log.eq(self._shorter(self.length) + MIN_LENGTH_LOG),
                self.made_log.eq(made + MIN_LENGTH_LOG),
                streams.eq(self.stochastic),
                self.several.eq(self.stochastic & (made + (MIN_LENGTH_LOG - step) != 0)),
            ]
            with m.Switch(made):
                for log in range(1 << LENGTH_BITS):
                    with m.Case(log):
                        m.d.sync += behind.eq(Const((1 << log + MIN_LENGTH_LOG - step) - 1, len(behind)))
        with m.If(self.inside):
            m.d.sync += [left.eq(left - 1), self.over.eq(left == 2), self.inside.eq(~self.over)]
        with m.Else():
            m.d.sync += [left.eq(behind), self.over.eq(self.begin & self.several & (behind == 1)),
                         self.inside.eq(self.begin & self.several)]
        return m
