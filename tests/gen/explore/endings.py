"""Workers that answer in any order, or not at all."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gen.explore.evaluation import Meter
from gen.explore.workers import Here

__all__ = ["Killed", "Shuffled"]


class Shuffled:
    """Workers that answer in any order."""

    def __init__(self, meter: Meter, rng: np.random.Generator) -> None:
        self.meter, self.rng = meter, rng

    def run(self, groups: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        for number in self.rng.permutation(len(groups)).tolist():
            yield number, self.meter.measure(groups[number])


class Killed(Here):
    """Workers that end with the whole process after some groups."""

    def __init__(self, meter: Meter, after: int) -> None:
        super().__init__(meter)
        self.left = after

    def run(self, groups: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        for result in super().run(groups):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            yield result
