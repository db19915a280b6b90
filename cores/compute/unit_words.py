"""Words of the units beside the multiplier array, as the sequencer and the pipeline after it have them."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Value

from ..lib.component import record
from ..timing.array_units import units_of
from ..timing.compute import ComputeEngineTiming
from .word_kind import Turn, WordKind, issue_stages

__all__ = ["UnitWords"]


class UnitWords(WordKind):
    """Of each unit, by the name of its kind of step in small letters: ``KIND``, the word is its; ``KIND_take``, the
    group of output lanes that its rows belong to.
    """

    def members(self) -> Mapping[str, Any]:
        groups = {kind.name.lower(): self.config.unit_groups(kind) for kind in self.config.unit_rows}
        return {**dict.fromkeys(groups, 1), **{f"{name}_take": count for name, count in groups.items()}}

    def issue(self, issue: Any, loops: Any, turn: Turn, *, go: Value) -> list[Any]:
        statements = []
        for kind in self.config.unit_rows:
            name = kind.name.lower()
            own = loops.kinds[name]
            statements += [
                issue[name].eq(turn.works & own),
                issue[f"{name}_take"].eq(Cat(own & (loops.group == group)
                                             for group in range(self.config.unit_groups(kind)))),
            ]
        return statements

    def follow(self, m: Module, issued: Any) -> tuple[Any, list[Any]]:
        """Those of units that lag come `lag` cycles later."""
        names = [unit.KIND.name.lower() for unit in units_of(self.config) if unit.LAGS]
        assert len(names) <= 1, "words of several units that lag would have to keep apart from each other"
        stages = issue_stages(m, issued, ComputeEngineTiming.lag(self.config) if names else 0, "lagging")
        if len(stages) == 1:
            return issued, []

        def lags(word: Any) -> Value:
            return Cat(word[name] for name in names).any()

        later = record(issued.shape(), name="later")
        m.d.comb += Value.cast(later).eq(Mux(lags(stages[-1]), stages[-1], issued))
        with m.If(lags(issued) & ~lags(stages[-1])):
            m.d.comb += later.eq(0)
        return later, stages[1:]
