"""What stands beside the multiplier array and makes sums in its place."""

from typing import Any

from amaranth.hdl import Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import NpuConfig
from ..lib.component import Component
from ..lib.hardware import hardware_of
from ..timing import array_units
from ..timing.array_unit import ArrayUnitTiming
from .word_issue import WordIssue

__all__ = ["ArrayUnit", "units_of"]


class ArrayUnit(ArrayUnitTiming, Component):
    """Sums of the words of COMPUTEs of one kind, with weights that come a beat for each of the unit's rows.

    The engine knows nothing else of it, but for ``zeros``, flags of the input buffer that the binary unit takes. A unit
    in a machine is an entry of `cores.timing.array_units`, its rows are in `NpuConfig.unit_rows`. The kind's COMPUTEs
    have `NpuConfig.unit_groups` steps for each block: step n makes the sums of the n-th group of rows. A word's pixels
    are there in one cycle, its sums ``latency`` cycles later.

    Raises ValueError unless ``latency`` is at least `shortest_latency`.
    """

    def __init__(self, config: NpuConfig, *, latency: int, ports: dict[str, wiring.Member] | None = None):
        if latency < self.shortest_latency(config):
            raise ValueError(f"latency must be at least {self.shortest_latency(config)}, not {latency!r}")
        self.config = config
        self.latency = latency
        super().__init__({
            "following": In(WordIssue(config)),  # the word whose pixels come in the next cycle
            "word": In(WordIssue(config)),       # the word whose pixels these are
            "pixels": In(data.ArrayLayout(config.entry_bits, config.banks)),  # as read from the banks
            # Weights of the next step, of each row.
            "rows": In(data.ArrayLayout(config.beat_bits, config.unit_rows[self.KIND])),
            "row_taken": In(1),                  # the last of ``rows`` came in the cycle before
            "release": Out(1),                   # the rows are copied in the next cycle
            "finishing": In(WordIssue(config)),  # the word whose sums are due in the next cycle
            # Of each pixel of each output lane; zero where they are not this unit's.
            "sums": Out(data.ArrayLayout(signed(config.sum_bits), config.acc_lanes)),
            **(ports or {}),
        })

    def starts(self, word: Any) -> Value:
        """Whether a word is the first of one of its steps."""
        return word.step_start & word[self.KIND.name.lower()]

    def takes(self, word: Any) -> Value:
        """The group of output lanes that get the rows' sums, a bit for each; none of a word that is not its."""
        return word[f"{self.KIND.name.lower()}_take"]


def units_of(config: NpuConfig) -> tuple[type[ArrayUnit], ...]:
    """The hardware of those that a machine has; `cores.timing.array_units` registers them."""
    return tuple(hardware_of(unit, unit.HARDWARE, ArrayUnit) for unit in array_units.units_of(config))
