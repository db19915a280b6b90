"""Spaces of designs: parameters, and the values that each may have."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from .errors import SpaceError

__all__ = ["Point", "Space", "Value"]

Value = int | float | str
#: Parameter -> value.
Point = Mapping[str, Value]


@dataclass(frozen=True, eq=False)
class Space:
    """``axes``: parameter -> its values, in an order that means nothing.

    Raises SpaceError for a parameter without values, or with one twice.
    """

    axes: Mapping[str, Sequence[Value]]

    def __post_init__(self) -> None:
        for name, values in self.axes.items():
            if not values:
                raise SpaceError(f"{name}: no values")
            twice = next((value for number, value in enumerate(values) if value in values[:number]), None)
            if twice is not None:
                raise SpaceError(f"{name}: {twice} stands there twice")

    @cached_property
    def size(self) -> int:
        """Points in all."""
        return prod(len(values) for values in self.axes.values())

    @property
    def varied(self) -> tuple[str, ...]:
        """The parameters that have more than one value."""
        return tuple(name for name, values in self.axes.items() if len(values) > 1)

    def point(self, number: int) -> Point:
        """Of all points the one of this number, from 0; the last parameter changes fastest."""
        values: dict[str, Value] = {}
        for name in reversed(list(self.axes)):
            number, at = divmod(number, len(self.axes[name]))
            values[name] = self.axes[name][at]
        return {name: values[name] for name in self.axes}

    def sample(self, count: int, seed: int) -> list[Point]:
        """Different points at random, all of them if there are no more; the same for the same seed."""
        generator, chosen = random.Random(seed), dict[int, None]()
        if 2 * count >= self.size:
            return [self.point(number) for number in generator.sample(range(self.size), min(count, self.size))]
        while len(chosen) < count:
            chosen[generator.randrange(self.size)] = None
        return [self.point(number) for number in chosen]
