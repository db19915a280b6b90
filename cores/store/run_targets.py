"""Where the rows of a STORE go: what `StoreRuns` knows of that."""

from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib import wiring

from ..config import NpuConfig

__all__ = ["RunTargets"]


class RunTargets:
    """To memory. Machines in which some rows go elsewhere have a target that is derived from this."""

    def __init__(self, config: NpuConfig):
        self.config = config

    def ports(self) -> dict[str, wiring.Member]:
        """Of `StoreRuns`, beside those that all have."""
        return {}

    def offer(self, m: Module, runs: Any, *, valid: Value, accepted: Value, row: Value, beats: Value, last: Value,
              before: Value, outside: Value) -> None:
        """``runs`` offer what they have if ``valid``, until it is ``accepted``: ``beats`` of a ``row``, the ``last`` of
        the STORE. They do not if it is ``outside`` its region, or begins ``before`` that.
        """
        m.d.comb += [runs.run.valid.eq(valid), accepted.eq(runs.run.ready)]

    def take_beats(self, m: Module, engine: Any, runs: Any, buffer: Any, sequencer: Any) -> None:
        """In `StoreEngine`: where the beats in the ``buffer`` go, and what is reported of that."""
        m.d.comb += [
            engine.data.valid.eq(buffer.r_rdy),
            buffer.r_en.eq(engine.data.ready),
            engine.post_compute.eq(sequencer.post_compute),
            engine.error.eq(sequencer.error),
        ]

    def begin(self, m: Module) -> None:
        """While nothing is in hand."""

    def place(self, m: Module, row: Value) -> None:
        """While the ``row`` is placed."""

    def check(self, m: Module, last_row: Value) -> None:
        """While it is checked; ``last_row``: it is the last of its block."""
