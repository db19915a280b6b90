"""Words that not all machines have: what the sequencer and the pipeline after it know of them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from amaranth.hdl import Module, Value

from ..config import NpuConfig
from ..lib.component import record

__all__ = ["Turn", "WordKind", "issue_stages"]


class Turn(NamedTuple):
    """When the sequencer's loops go on. ``may_go``: they may; ``works``: a word is at work; ``begins``: it begins.

    Of words that stay for a cycle each, the latter two are that they go on.
    """

    may_go: Value
    works: Value
    begins: Value


class WordKind:
    """Words of a unit. In a machine, the sequencer has one of each of its kinds (`word_kinds`)."""

    #: Whether some of them stay for more than a cycle.
    STAYS = False
    #: Whether instructions set what only the unit looks at.
    SETS = False

    def __init__(self, config: NpuConfig):
        self.config = config

    def members(self) -> Mapping[str, Any]:
        """What `WordIssue` says of them, by name, with shapes."""
        return {}

    def pace(self, m: Module, sequencer: Any, loops: Any, turn: Turn, *, go: Value, done: Value, step_free: Value,
             following: Any) -> Turn:
        """When the loops go on, where words stay. ``go``: they do, ``done``: for the last time; ``step_free``: the next
        step is far enough from the one before; ``following``: the next instruction, decoded.
        """
        return turn

    def same(self, loops: Any, following: Any) -> list[Value]:
        """What has to hold for the next instruction to follow the running one at once."""
        return []

    def setters(self, word: Any) -> list[Value]:
        """Whether an instruction sets what only its unit looks at: it is taken when nothing is under way."""
        return []

    def issue(self, issue: Any, loops: Any, turn: Turn, *, go: Value) -> list[Any]:
        """What `WordIssue` says in the next cycle: statements."""
        return []

    def follow(self, m: Module, issued: Any) -> tuple[Any, list[Any]]:
        """What is ``issued``, in time with the sums; and the registers of words that come later than others."""
        return issued, []


def issue_stages(m: Module, first: Any, count: int, name: str) -> list[Any]:
    """What ``first``, of `WordIssue`, was in the last ``count`` cycles, the present one first."""
    chain = [first]
    for number in range(1, count + 1):
        stage = record(first.shape(), name=f"{name}{number}")
        m.d.sync += Value.cast(stage).eq(chain[-1])
        chain.append(stage)
    return chain
