"""The data region of a program: constants, stored once each, and feature maps, in the place of those that are done."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gen.memory.placement import Placement, aligned

__all__ = ["Constants", "Lifetime", "arrange", "first_fit"]


@dataclass(frozen=True)
class Lifetime:
    """The steps of a program in which a feature map is needed: from the one that writes it to the last that reads it.

    Steps are numbered in program order; what is there before the first, or after the last, has -1 or their number.
    """

    first: int
    last: int

    def meets(self, other: "Lifetime") -> bool:
        return self.first <= other.last and other.first <= self.last

    def joined(self, other: "Lifetime") -> "Lifetime":
        """From the first step of both to the last."""
        return Lifetime(min(self.first, other.first), max(self.last, other.last))


def first_fit(sizes: Mapping[str, tuple[int, Lifetime]]) -> dict[str, int]:
    """In order, the lowest place for each size that is free in all its time: where it begins."""
    found: dict[str, int] = {}
    for name, (size, life) in sizes.items():
        taken = sorted((begin, begin + sizes[other][0])
                       for other, begin in found.items() if sizes[other][1].meets(life))
        offset = 0
        for low, high in taken:
            if offset + size <= low:
                break
            offset = max(offset, high)
        found[name] = offset
    return found


class Constants:
    """Arrays of uint8 (beats, tn), one after the other; those that are equal are one."""

    def __init__(self) -> None:
        self._arrays: list[np.ndarray] = []
        self._places: dict[bytes, int] = {}
        self.beats = 0

    def add(self, array: np.ndarray) -> int:
        """The first beat of an array."""
        key = hashlib.blake2b(np.ascontiguousarray(array).data).digest()
        if key not in self._places:
            self._places[key] = self.beats
            self._arrays.append(array)
            self.beats += len(array)
        return self._places[key]

    def reserve(self, beats: int) -> int:
        """The first beat of room for an array whose contents do not matter."""
        self.beats += beats
        return self.beats - beats

    def data(self) -> np.ndarray:
        return np.concatenate(self._arrays) if self._arrays else np.zeros((0, 0), np.uint8)


def arrange(tensors: Mapping[str, tuple[Placement, Lifetime]], start: int, tn: int) -> tuple[dict[str, Placement], int]:
    """Places from beat ``start`` on for tensors, none over another of the same time; and the end of them.

    The largest first, each at the lowest place that is free in all its time. Offsets of the given placements count from
    their ``whole``, and mean nothing without.
    """
    alone = [name for name, (place, _) in tensors.items() if place.whole is None]
    sizes = {name: (aligned(tensors[name][0].beats(tn), tn), tensors[name][1])
             for name in sorted(alone, key=lambda name: -tensors[name][0].beats(tn))}
    offsets = first_fit(sizes)
    end = start + max((offset + sizes[name][0] for name, offset in offsets.items()), default=0)

    def placed(name: str, place: Placement) -> Placement:
        whole = name if place.whole is None else place.whole
        return replace(place, offset=start + offsets[whole] + (place.offset if place.whole else 0))

    return {name: placed(name, place) for name, (place, _) in tensors.items()}, end
