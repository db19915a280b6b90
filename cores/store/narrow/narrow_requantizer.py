"""A requantizer with fewer lanes than a beat has channels."""

from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data

from ...lib.bits import select
from ...lib.component import record
from ..requantizer import Requantizer
from ..requantizer_lane import ChannelLayout

__all__ = ["NarrowRequantizer"]


class NarrowRequantizer(Requantizer):
    """As `Requantizer`, of a part of a pixel's channels at a time: an issue is that of the ``part`` that it names.

    Every part needs ``load``, and with a second stage parts set out multiples of `ADD_CYCLES` apart. ``output_valid``
    comes with the last part's results.
    """

    def _arrive(self, m: Module) -> tuple[Any, Any, Value]:
        issue, pooled, residual = super()._arrive(m)
        parts, lanes = self.config.store_parts, self.lanes
        #: The part of the issue of so many cycles ago.
        self._part = [issue.part]
        for cycle in range(1, 5):
            self._part.append(Signal.like(issue.part, name=f"part{cycle}", reset_less=True))
            m.d.sync += self._part[cycle].eq(self._part[cycle - 1])

        def of_part(cycle: int, value: Value, bits: int) -> Value:
            return select(self._part[cycle], [value.word_select(part, lanes * bits) for part in range(parts)])

        some = data.ArrayLayout(pooled.shape().elem_shape, lanes)
        chosen = Signal(some, name="pooled_part")
        m.d.comb += Value.cast(chosen).eq(of_part(0, Value.cast(pooled), len(pooled[0])))
        return issue, chosen, of_part(self.RESIDUAL, residual, 8)

    def _place_of_part(self, place: Value) -> Value:
        return Cat(self._part[1], place)

    def _channels(self, m: Module) -> Any:
        """Of each a lane looks at the bias in cycle 1, at the multiplier in 2, at the shift in 4."""
        found = []
        for lane in range(self.lanes):
            channel = record(ChannelLayout(self.config.acc_width), name=f"channel{lane}")
            for name, cycle in (("bias", 1), ("multiplier", 2), ("shift", 4)):
                m.d.comb += channel[name].eq(select(self._part[cycle], [
                    self.channels[base + lane][name] for base in range(0, self.config.ic_lanes, self.lanes)]))
            found.append(channel)
        return found
