"""Spread words and windows, as the sequencer and the pipeline after it have them."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Module, Mux, Value

from ...arch.instruction_layout import is_kind
from ...arch.isa import WordForm
from ...lib.component import record
from ..word_kind import Turn, WordKind, issue_stages

__all__ = ["SpreadWords"]


class SpreadWords(WordKind):
    """A window's word is complete when its last read is there, so windows and other words keep apart."""

    def members(self) -> Mapping[str, Any]:
        return {"spread": 1, "window": 1, "alternate": 1}

    def same(self, loops: Any, following: Any) -> list[Value]:
        return [following.kinds.window == loops.window]

    def issue(self, issue: Any, loops: Any, turn: Turn, *, go: Value) -> list[Any]:
        form = loops.geometry.words
        return [
            issue.spread.eq(is_kind(form, WordForm.SPREAD, self.config)),
            issue.window.eq(go & loops.window),
            issue.alternate.eq(is_kind(form, WordForm.ALTERNATE, self.config)),
        ]

    def follow(self, m: Module, issued: Any) -> tuple[Any, list[Any]]:
        windows = issue_stages(m, issued, self.config.window_reads - 1, "window")
        complete = record(issued.shape(), name="issued")
        m.d.comb += Value.cast(complete).eq(Mux(windows[-1].window, windows[-1], issued))
        with m.If(issued.window & ~windows[-1].window):
            m.d.comb += complete.eq(0)
        return complete, windows
