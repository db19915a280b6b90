"""Parameters of the channel block that is being stored."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from ..arch.numerics import MIN_SHIFT, MULTIPLIER_BITS, PARAMETER_BYTES
from ..config import NpuConfig
from ..lib.component import Component, record
from ..timing.store import ChannelParametersTiming
from .requantizer_lane import SHIFT_BITS, ChannelLayout

__all__ = ["ChannelParameters"]

#: Where the shift stands in a channel's bytes.
_SHIFT_BIT = 56
_MULTIPLIER_BIT = 32


class ChannelParameters(ChannelParametersTiming, Component):
    """Takes 8 beats while ``enable`` is high and no parameters are held, one a cycle, and holds what they say."""

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "enable": In(1),   # take the next block's beats
            "beats": In(stream.Signature(config.beat_bits)),  # from the side ring
            "loaded": Out(1),  # the last of them is taken
            "release": In(1),  # make room for the next ones
            "channels": Out(data.ArrayLayout(ChannelLayout(config.acc_width), config.ic_lanes)),  # what they say
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        layout = ChannelLayout(config.acc_width)
        count = Signal(range(PARAMETER_BYTES))
        held = Signal()
        accept, last = Signal(), Signal()   # a beat is taken; the next one is the block's last
        m.d.comb += [
            self.beats.ready.eq(self.enable & ~held),
            accept.eq(self.beats.ready & self.beats.valid),
            self.loaded.eq(accept & last),
        ]
        with m.If(self.loaded):
            m.d.sync += held.eq(1)
        with m.Elif(self.release):
            m.d.sync += held.eq(0)

        payload, complete = self._channels_of_beat(m, accept, count)
        arriving = []
        for channel in range(len(payload) // (8 * PARAMETER_BYTES)):
            word = payload.word_select(channel, 8 * PARAMETER_BYTES)
            value = record(layout, name=f"arriving{channel}")
            m.d.comb += [
                value.bias.eq(word[:config.acc_width]),
                value.multiplier.eq(word[_MULTIPLIER_BIT:_MULTIPLIER_BIT + MULTIPLIER_BITS]),
                value.shift.eq(word[_SHIFT_BIT:_SHIFT_BIT + SHIFT_BITS + 1] - MIN_SHIFT),
            ]
            arriving.append(value)
        # A chain: beats enter at the last channels and move down, so no lane needs a selection of its own.
        chain = [Signal(layout, name=f"channel{lane}", reset_less=True) for lane in range(config.ic_lanes)]
        following = [*chain[len(arriving):], *arriving]
        moves = [lane.eq(source) for lane, source in zip(chain, following, strict=True)]
        with m.If(accept):
            m.d.sync += [count.eq(count + 1), last.eq(count == PARAMETER_BYTES - 2)]
            if complete is None:
                m.d.sync += moves
            else:
                with m.If(complete):
                    m.d.sync += moves
        m.d.comb += [self.channels[lane].eq(value) for lane, value in enumerate(chain)]
        return m

    def _channels_of_beat(self, m: Module, accept: Value, count: Value) -> tuple[Value, Value | None]:
        """What whole channels a beat brings; and where a channel has two beats, whether this is the second."""
        beat = self.beats.payload
        if self.config.beat_bytes >= PARAMETER_BYTES:
            return beat, None
        first = Signal(len(beat), reset_less=True)
        with m.If(accept):
            m.d.sync += first.eq(beat)
        return Cat(first, beat), count[0]
