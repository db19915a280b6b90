"""Results whose signs alone are stored, those of eight pixels to a beat."""

from collections.abc import Mapping, Sequence
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..arch.numerics import MAP_PIXELS
from ..timing.store import RequantizerTiming
from .result_beats import ResultBeats
from .sign_packer import SignPacker

__all__ = ["SignBeats"]


class SignBeats(ResultBeats):
    """With STORE_SIGNS the output is beats of signs (`sim.signs.pack_map`), `RequantizerTiming.PACKING` cycles later.

    They pass through the lanes' last registers, whose clip makes zero in that cycle: a multiplexer after them would
    take a look-up table for every bit of a beat.
    """

    ISSUE = {"row_end": 1}
    PORTS = {"packed": Out(1)}      # a pixel that makes no beat of its own
    RUN_PORTS = {"signs": In(1)}    # a row is written as signs, those of eight pixels to a beat; stands still as well
    PACKS = True

    def limit(self, m: Module, requantizer: Any, valid: Sequence[Value], issue: Any, early: dict[str, Value]) -> None:
        """Only first results that a second stage wants back are clipped; all else is zero, for the packer's beats.

        The packer is fed in the cycle of the last clip, with the signs of that cycle's limits.
        """
        chain = requantizer.chain
        self._pack(m, requantizer, valid, issue, early)
        for limit in ("low", "high"):
            early[limit] = Mux(chain.signs & ~(valid[8] & chain.adds), 0, early[limit])

    def limit_stages(self, m: Module, requantizer: Any, valid: Sequence[Value], issue: Any,
                     limits: dict[str, tuple[Value, Value]]) -> None:
        chain = requantizer.chain
        self._pack(m, requantizer, valid, issue, {
            name: Mux(chain.adds, of_second, of_first) for name, (of_first, of_second) in limits.items()})
        for name, (of_first, of_second) in limits.items():
            limits[name] = (Mux(chain.signs & ~chain.adds, 0, of_first), Mux(chain.signs, 0, of_second))

    def _pack(self, m: Module, requantizer: Any, valid: Sequence[Value], issue: Any,
              early: Mapping[str, Value]) -> None:
        """The packer, with the signs of results before they are clipped; ``early``: limits, a cycle ahead."""
        chain = requantizer.chain
        m.submodules.packer = packer = SignPacker(self.config)
        ends = [issue.row_end]
        for cycle in range(1, RequantizerTiming.ADD_LATENCY):
            delayed = Signal(name=f"row_end{cycle}")
            m.d.sync += delayed.eq(ends[-1])
            ends.append(delayed)
        first, second = RequantizerTiming.LATENCY - 1, RequantizerTiming.ADD_LATENCY - 1
        m.d.comb += [
            packer.valid.eq(chain.signs & Mux(chain.adds, valid[second], valid[first])),
            packer.row_end.eq(Mux(chain.adds, ends[second], ends[first])),
        ]
        negative = [Signal(name=f"{limit}_negative") for limit in ("low", "high")]
        m.d.sync += [sign.eq(early[limit][-1]) for sign, limit in zip(negative, ("low", "high"), strict=True)]
        self._packer, (self._low_negative, self._high_negative) = packer, negative

    def comes(self, m: Module, requantizer: Any, pixel_comes: Value) -> Value:
        packer = self._packer
        beats = packer.completes
        for cycle in range(RequantizerTiming.PACKING):
            delayed = Signal(name=f"beats{cycle}")
            m.d.sync += delayed.eq(beats)
            beats = delayed
        m.d.comb += requantizer.packed.eq(packer.valid & ~packer.completes)
        return Mux(requantizer.chain.signs, beats, pixel_comes)

    def connect_lane(self, m: Module, lane: int, unit: Any) -> None:
        packer = self._packer
        m.d.comb += [
            packer.signs[lane].eq(~self._high_negative & ~(unit.negative & self._low_negative)),
            unit.merge.eq(packer.beat.word_select(lane, 8)),
        ]

    def in_bursts(self, chain: Any, wanted: Value) -> Value:
        """Beats of signs pass the lanes' last registers after second turns, when the next burst's first ones do."""
        return wanted & ~chain.signs

    def connect_runs(self, chain: Any, runs: Any) -> list[Any]:
        return [runs.signs.eq(chain.signs)]

    def beats_of_row(self, m: Module, runs: Any, beats: Value) -> None:
        with m.If(runs.signs):
            m.d.sync += beats.eq((runs.geometry.cols + (MAP_PIXELS - 1)) >> exact_log2(MAP_PIXELS))

    def packed(self, m: Module, requantizer: Any, packed: Value) -> None:
        m.d.sync += packed.eq(requantizer.packed)
