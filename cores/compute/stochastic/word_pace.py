"""Word pace: for how many cycles a word of pixels stays, while its streams are made."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from ...arch.stochastic import LENGTH_BITS, MAX_LENGTH_LOG, MIN_LENGTH_LOG
from ...config import NpuConfig
from ...lib.component import Component
from .stream_source import LogShape

__all__ = ["WordPace"]


class WordPace(Component):
    """Counts the cycles of each word of the instruction taken with ``take``, up to its ``done``.

    A word of streams stays for 2**``made_log`` / ``stochastic_bits`` cycles, any other for one. If that is more than
    one, ``several`` is high, and such a word begins with ``begin``: ``inside`` is high after its first cycle, and
    ``may_go`` in its last. Otherwise ``may_go`` is high until the instruction is done.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "take": In(1),              # an instruction begins in the next cycle
            "done": In(1),              # the one at work ends with this one
            "stochastic": In(1),        # words of the instruction to take are made of streams
            "length": In(LENGTH_BITS),  # as it has it
            "made": In(LENGTH_BITS),    # the same
            "shift": In(LENGTH_BITS),   # both are less by so much, where they can be
            "begin": In(1),             # the first cycle of a word that stays
            "several": Out(1),          # words of the instruction stay for more than a cycle
            "inside": Out(1),           # a word has begun before
            "may_go": Out(1),           # this can be a word's last cycle, or its only one
            "same": Out(1),             # words of the instruction to take are of this one's kind, and stay as long
            "length_log": Out(LogShape),  # logarithm of the streams' length
            "made_log": Out(LogShape),    # of what is made of them
        })

    def _shorter(self, log: Value) -> Value:
        """What is left of a length's logarithm, of `LENGTH_BITS`."""
        return Mux(log > self.shift, log - self.shift, 0)[:LENGTH_BITS]

    def elaborate(self, platform):
        m = Module()
        step = (self.config.stochastic_bits - 1).bit_length()
        behind = Signal(MAX_LENGTH_LOG - step)      # cycles of a word after its first
        left = Signal.like(behind)
        made = Signal(LENGTH_BITS)
        streams = Signal()          # words of the instruction at work are made of them
        several, over_next = Signal(name="next_several"), Signal()
        m.d.comb += [
            made.eq(self._shorter(self.made)),
            several.eq(self.stochastic & (made + (MIN_LENGTH_LOG - step) != 0)),
            self.same.eq((self.stochastic == streams)
                         & (~streams | (made + MIN_LENGTH_LOG == self.made_log))),
            over_next.eq(Mux(self.inside, left == 2, self.begin & (behind == 1))),
        ]
        with m.If(self.take):
            m.d.sync += [
                self.length_log.eq(self._shorter(self.length) + MIN_LENGTH_LOG),
                self.made_log.eq(made + MIN_LENGTH_LOG),
                self.several.eq(several),
                streams.eq(self.stochastic),
            ]
            with m.Switch(made):
                for log in range(1 << LENGTH_BITS):
                    with m.Case(log):
                        m.d.sync += behind.eq(Const((1 << log + MIN_LENGTH_LOG - step) - 1, len(behind)))
        with m.If(self.take):
            m.d.sync += self.may_go.eq(~several)
        with m.Elif(self.several):
            m.d.sync += self.may_go.eq(over_next)
        with m.Elif(self.done):
            m.d.sync += self.may_go.eq(0)
        with m.If(self.inside):
            m.d.sync += [left.eq(left - 1), self.inside.eq(~self.may_go)]
        with m.Else():
            m.d.sync += [left.eq(behind), self.inside.eq(self.begin)]
        return m
