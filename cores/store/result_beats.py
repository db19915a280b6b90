"""What beats of results are: what the store engine knows of that."""

from collections.abc import Mapping, Sequence
from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib import wiring

from ..config import NpuConfig

__all__ = ["ResultBeats"]


class ResultBeats:
    """A beat for each pixel. Results that come in others derive from this."""

    #: Members of `PixelIssue` by name, with their bits, that are those of the pixel's position.
    ISSUE: Mapping[str, int] = {}
    #: Ports of `Requantizer` and of `StoreRuns` that only these results have.
    PORTS: Mapping[str, wiring.Member] = {}
    RUN_PORTS: Mapping[str, wiring.Member] = {}
    #: Whether lanes take and give what `RequantizerLane` has for results that are packed.
    PACKS = False

    def __init__(self, config: NpuConfig):
        self.config = config

    def limit(self, m: Module, requantizer: Any, valid: Sequence[Value], issue: Any, early: dict[str, Value]) -> None:
        """In `Requantizer`: what becomes of the controls of the lanes in a cycle, ``early``. ``valid``: of the pixel
        that set out so many cycles ago; ``issue``: that of this cycle.
        """

    def limit_stages(self, m: Module, requantizer: Any, valid: Sequence[Value], issue: Any,
                     limits: dict[str, tuple[Value, Value]]) -> None:
        """In `StagedRequantizer`: what becomes of the limits of the first stage and of the second, ``low`` and
        ``high``, which stand still.
        """

    def comes(self, m: Module, requantizer: Any, pixel_comes: Value) -> Value:
        """In `Requantizer`: whether a beat comes in the next cycle; ``pixel_comes``: a pixel's results do."""
        return pixel_comes

    def connect_lane(self, m: Module, lane: int, unit: Any) -> None:
        """In `Requantizer`: a `RequantizerLane`."""

    def give(self, m: Module, requantizer: Any, lane: int, unit: Any) -> list[Any]:
        """In `Requantizer`: what becomes of the results of a `RequantizerLane`."""
        return [requantizer.output[lane].eq(unit.output)]

    def takes_place(self, issue: Any) -> Value:
        """In `StoreEngine`: whether what sets out takes a place in the buffer."""
        return issue.valid

    def leaves_room(self, issue: Any) -> list[Value]:
        """In `StoreEngine`: reasons, beside those that all have, why there is room after what sets out."""
        return []

    def in_bursts(self, chain: Any, wanted: Value) -> Value:
        """In `StoreSequencer`: whether pixels without another operand set out in bursts; ``wanted``: they can."""
        return wanted

    def connect_runs(self, chain: Any, runs: Any) -> list[Any]:
        """In `StoreEngine`: what `StoreRuns` has to know."""
        return []

    def beats_of_row(self, m: Module, runs: Any, beats: Value) -> None:
        """In `StoreRuns`: where a row has other ``beats`` than columns."""

    def packed(self, m: Module, requantizer: Any, packed: Value) -> None:
        """In `StoreEngine`: in a cycle after a pixel that makes no beat of its own, its place in the buffer is free."""
