"""The weights of the next step on their way from the weight ring: beats that come one by one, all of them at hand."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from ..config import NpuConfig
from ..config.units.int4 import INT4_BITS

__all__ = ["Int4Chain", "WeightChain"]


class WeightChain:
    """Whole beats, filled from above: none of the steps need fill the chain."""

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self._beats = Signal(self._length * config.beat_bits, reset_less=True, name="weights")

    @property
    def _length(self) -> int:
        """Beats of the longest step."""
        return max([self.config.weight_beats, *self.config.unit_rows.values()])

    def last(self, beats: int) -> Value:
        """The beats of a step that has so many, once all are taken; the first one lowest."""
        return self._beats[-beats * self.config.beat_bits:]

    def take(self, m: Module, enable: Value, payload: Value, step: data.View, count: Value) -> None:
        """Have a beat taken where ``enable``: of ``step``, the beat ``count`` of it."""
        with m.If(enable):
            m.d.sync += self._beats.eq(Cat(self._beats[self.config.beat_bits:], payload))


class Int4Chain(WeightChain):
    """Two chains that take beats by turns, and the halves of a beat of weights of four bits at once.

    So in front of each is one choice; a chain that moved by one beat or two would have one in front of every bit.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        length = -(-self._length // 2) * config.beat_bits
        self._even = Signal(length, reset_less=True, name="weights_even")
        self._odd = Signal(length, reset_less=True, name="weights_odd")

    def last(self, beats: int) -> Value:
        width, even, odd = self.config.beat_bits, self._even, self._odd
        # Of an odd number the first chain has one more.
        in_even, in_odd = -(-beats // 2), beats // 2
        taken = [even[len(even) - (in_even - n // 2) * width:][:width] if n % 2 == 0 else
                 odd[len(odd) - (in_odd - n // 2) * width:][:width] for n in range(beats)]
        return Cat(*taken)

    def take(self, m: Module, enable: Value, payload: Value, step: data.View, count: Value) -> None:
        width = self.config.beat_bits
        # Beats of indices come before those of weights.
        place = count[0] ^ step.kinds.indexed if self.config.index_beats % 2 else count[0]
        for number, chain in enumerate((self._even, self._odd)):
            half = payload[number * width // 2:(number + 1) * width // 2]
            with m.If(enable & (step.kinds.int4 | (place == number))):
                m.d.sync += chain.eq(Cat(chain[width:], Mux(step.kinds.int4, _expanded(half), payload)))


def _expanded(weights: Value) -> Value:
    """Weights of four bits with eight each."""
    signed = [weights[low:low + INT4_BITS] for low in range(0, len(weights), INT4_BITS)]
    return Cat(*(Cat(one, one[-1].replicate(INT4_BITS)) for one in signed))
