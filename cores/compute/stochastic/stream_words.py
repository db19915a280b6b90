"""Words of streams, as the sequencer and the pipeline after it have them."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Module, Signal, Value

from ..word_kind import Turn, WordKind
from .stream_source import LogShape
from .word_pace import WordPace

__all__ = ["StreamWords"]


class StreamWords(WordKind):
    """A word of streams is there in all of its cycles, and ``gemm`` in the last, with which the loops go on; in its
    first, ``word_start``, what its streams are. Words that stay for another number of cycles keep apart.
    """

    STAYS = True

    def members(self) -> Mapping[str, Any]:
        return {"word_start": 1, "length": LogShape, "made": LogShape}

    def pace(self, m: Module, sequencer: Any, loops: Any, turn: Turn, *, go: Value, done: Value, step_free: Value,
             following: Any) -> Turn:
        """A word of streams begins when it may, and the loops go on when it is over."""
        m.submodules.pace = pace = WordPace(self.config)
        works, begins = Signal(name="works"), Signal(name="begins")
        stays = Signal()        # a word begins that does
        m.d.comb += [
            stays.eq(loops.running & pace.several & ~pace.inside
                     & ~(loops.at_start & ~(sequencer.weights_ready & step_free))),
            begins.eq(go & ~pace.inside | stays),
            works.eq(go | stays | pace.inside),
            loops.begin.eq(stays),
            pace.begin.eq(stays),
            pace.take.eq(loops.start),
            pace.done.eq(done),
            pace.shift.eq(sequencer.stream_shift),
            pace.stochastic.eq(following.kinds.stochastic),
            *[getattr(pace, name).eq(following.word[name]) for name in ("length", "made")],
        ]
        self._pace = pace
        return Turn(pace.may_go, works, begins)

    def same(self, loops: Any, following: Any) -> list[Value]:
        return [self._pace.same]

    def issue(self, issue: Any, loops: Any, turn: Turn, *, go: Value) -> list[Any]:
        return [
            issue.word_start.eq(turn.begins & loops.kinds.stochastic),
            issue.length.eq(self._pace.length_log),
            issue.made.eq(self._pace.made_log),
        ]
