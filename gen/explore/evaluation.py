"""What is known of a point, and what a problem must say for points to be searched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .space import Point, Space

__all__ = ["Meter", "Evaluation", "Job", "Objective", "Problem", "Result"]

#: What a measurement has found: plain values, ready for JSON.
Result = Mapping[str, Any]


@dataclass(frozen=True)
class Objective:
    """A figure that is to be small, or large; ``unit`` is for people, "" for a count."""

    name: str
    unit: str = ""
    largest: bool = False

    def loss(self, value: float) -> float:
        """The figure as one that is to be small."""
        return -value if self.largest else value


@dataclass(frozen=True)
class Job:
    """One measurement. ``content``: plain values that, with the meter's identity, decide the result.

    Jobs of one ``group`` share work, and are done by one worker. The heaviest begin first; ``weight`` is no unit.
    ``remark``: for people, of one that takes minutes.
    """

    content: Mapping[str, Any]
    group: str
    weight: float = 1.0
    remark: str = ""


@dataclass(frozen=True)
class Evaluation:
    """A point and what became of it.

    ``figures``: objectives and what else is a number; objectives of an infeasible point may be missing. ``facts``: in
    words. ``infeasible``: why it is no solution, empty if it is one; ``excess``: how far from being one, 0 if it is.
    """

    point: Point
    figures: Mapping[str, float]
    facts: Mapping[str, Any] = field(default_factory=dict)
    infeasible: tuple[str, ...] = ()
    excess: float = 0.0

    @property
    def feasible(self) -> bool:
        return not self.infeasible


class Meter(Protocol):
    """What does jobs; it goes to the workers as a pickle, and may keep what its jobs share."""

    @property
    def identity(self) -> str:
        """Of what decides results beside a job's content: the state of the sources, models, samples."""

    def measure(self, jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The results of some jobs of one group, by their contents."""


class Problem(Protocol):
    """What the points of a space mean."""

    @property
    def space(self) -> Space: ...

    @property
    def objectives(self) -> Sequence[Objective]: ...

    @property
    def meter(self) -> Meter: ...

    def jobs(self, point: Point) -> Sequence[Job]:
        """The measurements that a point needs; none where it is known without that it is infeasible."""

    def evaluation(self, point: Point, results: Sequence[Result]) -> Evaluation:
        """What its jobs' results make of a point."""
