"""Places in the arena: what is not used at the same time shares bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

from gen.c.value import Storage
from gen.memory.region import Lifetime, first_fit

__all__ = ["ALIGNMENT", "place"]

#: Of every place, and of the arena itself.
ALIGNMENT = 8


@dataclass
class _Group:
    """Storages in one place, one after the other."""

    size: int
    life: Lifetime


def place(storages: Sequence[Storage]) -> int:
    """Give each its ``offset``; the bytes that all take.

    A result that may be written `over` an operand, which is used for the last time there, is in its place. The largest
    come first, each at the lowest place that is free in all its time.
    """
    groups: dict[int, _Group] = {}
    for one in sorted(storages, key=lambda storage: storage.first):
        size = -(-one.size // ALIGNMENT) * ALIGNMENT
        life = Lifetime(one.first, one.last)
        under = next((groups[id(other)] for other in one.over if id(other) in groups and other.last == one.first
                      and groups[id(other)].life.last == one.first and size <= groups[id(other)].size), None)
        if under is None:
            groups[id(one)] = _Group(size, life)
        else:
            under.life = under.life.joined(life)
            groups[id(one)] = under
    names = {id(group): f"{number}" for number, group in enumerate(groups.values())}
    own = {names[id(group)]: (group.size, group.life)
           for group in sorted(groups.values(), key=lambda group: -group.size)}
    offsets = first_fit(own)
    for one in storages:
        one.offset = offsets[names[id(groups[id(one)])]]
    return max((offsets[name] + size for name, (size, _) in own.items()), default=0)
