"""What a model would gain from optional units that the machine lacks."""

from collections.abc import Callable
from dataclasses import dataclass

from gen.ir.errors import GraphError
from gen.onnx.machine import Machine
from gen.partition.partition import Partition

__all__ = ["Gain", "gains"]


@dataclass(frozen=True, eq=False)
class Gain:
    """How the model is cut for a machine that has ``features`` too."""

    features: tuple[str, ...]
    cut: Partition


def gains(now: Partition, machine: Machine, again: Callable[[Machine], Partition]) -> list[Gain]:
    """For each unit that the ``machine`` lacks, and for all of them where they give more than each by itself.

    ``again`` cuts the model of ``now`` for another machine: as often as there are units that some node has use for, and
    once more for several. Only what leaves the processor fewer nodes, or fewer segments, is in the result.
    """
    cuts: dict[tuple[str, ...], Partition | None] = {}

    def cut(names: tuple[str, ...]) -> Partition | None:
        if names not in cuts:
            try:
                cuts[names] = again(machine.with_units(*names))
            except GraphError:
                cuts[names] = None
        return cuts[names]

    def gain(*names: str) -> Gain | None:
        found = cut(names)
        return None if found is None or _left(found) >= _left(now) else Gain(names, found)

    wanted, more = frozenset[str](), now.missed
    while more:     # a unit may bring nodes as far as where they have use for another
        wanted |= more
        names = _ordered(machine, wanted)
        together = cut(names)
        more = frozenset() if together is None else together.missed
    if not wanted or (most := gain(*names)) is None:
        return []
    alone = [found for name in _ordered(machine, now.missed) if (found := gain(name)) is not None]
    return alone if any(_left(one.cut) <= _left(most.cut) for one in alone) else [*alone, most]


def _ordered(machine: Machine, names: frozenset[str]) -> tuple[str, ...]:
    return tuple(name for name in machine.lacks if name in names)


def _left(cut: Partition) -> tuple[int, int]:
    """What is left to the processor: nodes, and segments."""
    return len(cut.host), cut.host_segments
