"""Spaces of designs: parameters, and the values that each may have."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod

from .errors import SpaceError

__all__ = ["ABSENT", "Point", "Space", "Value"]

Value = int | float | str
#: Parameter -> value.
Point = Mapping[str, Value]


#: The value of a parameter that means nothing in a point.
ABSENT = ""


@dataclass(frozen=True, eq=False)
class Space:
    """``axes``: parameter -> its values, in an order that means nothing.

    ``needs``: a parameter -> one that stands before it, and the values of that with which it means something; with all
    others it is `ABSENT`. Raises SpaceError for a parameter without values, or with one twice.
    """

    axes: Mapping[str, Sequence[Value]]
    needs: Mapping[str, tuple[str, Sequence[Value]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values in self.axes.items():
            if not values:
                raise SpaceError(f"{name}: no values")
            twice = next((value for number, value in enumerate(values) if value in values[:number]), None)
            if twice is not None:
                raise SpaceError(f"{name}: {twice} stands there twice")

    @cached_property
    def _deciding(self) -> tuple[str, ...]:
        """The parameters that others need."""
        needed = {name for name, _ in self.needs.values()}
        return tuple(name for name in self.axes if name in needed)

    @cached_property
    def _parts(self) -> list[tuple[Point, list[str], int]]:
        """For all values of those: they, the other parameters that mean something, how many points these make."""
        return [(point, free, prod(len(self.axes[name]) for name in free))
                for values in product(*(self.axes[name] for name in self._deciding))
                for point in [dict(zip(self._deciding, values, strict=True))]
                for free in [list(self._free(point))]]

    def _free(self, point: Point) -> Iterator[str]:
        for name in self.axes:
            if name not in self._deciding and self._means(name, point):
                yield name

    def _means(self, name: str, point: Point) -> bool:
        need = self.needs.get(name)
        return need is None or point[need[0]] in need[1]

    @cached_property
    def size(self) -> int:
        """Points in all, that differ in what means something."""
        return sum(count for *_, count in self._parts)

    @property
    def varied(self) -> tuple[str, ...]:
        """The parameters that have more than one value."""
        return tuple(name for name, values in self.axes.items() if len(values) > 1)

    def settled(self, point: Point) -> Point:
        """The point, `ABSENT` what means nothing in it."""
        return {name: value if self._means(name, point) else ABSENT for name, value in point.items()}

    def point(self, number: int) -> Point:
        """Of all points the one of this number, from 0; the last parameter changes fastest."""
        parts = iter(self._parts)
        values, free, count = next(parts)
        while number >= count:
            number -= count
            values, free, count = next(parts)
        chosen = dict(values)
        for name in reversed(free):
            number, at = divmod(number, len(self.axes[name]))
            chosen[name] = self.axes[name][at]
        return {name: chosen.get(name, ABSENT) for name in self.axes}

    def sample(self, count: int, seed: int) -> list[Point]:
        """Different points at random, all of them if there are no more; the same for the same seed."""
        generator, chosen = random.Random(seed), dict[int, None]()
        if 2 * count >= self.size:
            return [self.point(number) for number in generator.sample(range(self.size), min(count, self.size))]
        while len(chosen) < count:
            chosen[generator.randrange(self.size)] = None
        return [self.point(number) for number in chosen]
