"""When pixels with a second stage set out: what the store engine knows of the multipliers' turns."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring

from ..config import NpuConfig
from ..timing.store import RequantizerTiming

__all__ = ["Turns"]


class Turns:
    """All turns of a pixel are at its lanes' one multiplier. Machines in which they are not derive from this."""

    #: Ports of `StoreEngine` and `StoreSequencer` that only others have.
    PORTS: Mapping[str, wiring.Member] = {}

    def __init__(self, config: NpuConfig):
        self.config = config

    def begin(self, m: Module, sequencer: Any, *, begin: Value, tiles: Value, words: Any, results: Any) -> Value:
        """In `StoreSequencer`: whether it is a pixel's turn in the next cycle. ``begin``: a STORE does; ``tiles``: its
        pixels have the ``words`` of Winograd tiles.
        """
        chain = sequencer.chain
        add = chain.adds
        # Without residuals as many pixels as there is time to their second turns, then these.
        phase, burst = Signal(range(RequantizerTiming.ADD_CYCLES), init=1), Signal(range(2 * RequantizerTiming.SECOND))
        bends, residual = Signal(), Signal()
        m.d.sync += [
            phase.eq(Mux(phase == RequantizerTiming.ADD_CYCLES - 1, 0, phase + 1)),
            burst.eq(burst + 1),
            bends.eq(chain.leaky),
            residual.eq(add & ~chain.leaky),
        ]
        with m.If(begin):
            # The parameters take as long to come as one half of the bursts.
            m.d.sync += burst.eq(RequantizerTiming.SECOND + 1)
        turn_comes = words.turn(tiles, phase, Mux(
            results.in_bursts(chain, bends), burst < RequantizerTiming.SECOND, phase == 0))
        self.residual = residual
        return ~add | turn_comes

    #: Whether the chain has another operand, a cycle late; set by `begin`.
    residual: Value

    def wants(self, position: Any) -> Value:
        """In `StoreSequencer`: whether a ``position`` is one for which another operand can be taken."""
        return self.residual

    def lacks(self, sequencer: Any, wanted: Value) -> Value:
        """In `StoreSequencer`: whether a beat of another operand is ``wanted`` and not there."""
        return wanted & ~sequencer.side_valid

    def waits(self, sequencer: Any, lacks_parameters: Value) -> Value:
        """In `StoreSequencer`: what lacks parameters, or else another operand, waits for the side ring."""
        return ~sequencer.side_valid

    def loads(self, stage: Any, block_start: Value, block_end: Value) -> tuple[Value, Value]:
        """In `StoreSequencer`: whether a pixel takes its block's parameters, and whether that is the last time.

        A second stage's turns change what the lanes hold, so its pixels all take them.
        """
        add = stage.chain.adds
        return block_start | add, Mux(add, block_end, block_start)

    def goes_on(self, issue: Value, add: Value) -> Value:
        """In `StoreSequencer`: whether cycles after an ``issue`` are its pixel's as well; ``add``: with a second stage.
        """
        return issue & add

    def ring(self, store: Any, ring: Any) -> list[Any]:
        """In `Npu`: what the ``store`` engine knows of the side ring beside its stream."""
        return []
