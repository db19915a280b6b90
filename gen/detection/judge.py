"""How good a detector is on samples whose objects are known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gen.detection.annotations import Annotations, Key, Picture
from gen.detection.heads.base import Detections
from gen.detection.heads.registry import AnyHead
from gen.detection.precision import Precision, mean_average_precision

__all__ = ["Expected", "Judge", "Tally"]


@dataclass(frozen=True, eq=False)
class Judge:
    """A head, and annotations with its classes in its order (`Annotations.of`)."""

    head: AnyHead
    annotations: Annotations

    def expected(self, keys: Sequence[Key]) -> "Expected":
        """Of some samples. Raises AnnotationError for one that is not annotated."""
        return Expected(self.head, tuple(self.annotations.picture(key) for key in keys))


@dataclass(frozen=True, eq=False)
class Expected:
    """What is to be found in samples, one after the other."""

    head: AnyHead
    pictures: tuple[Picture, ...]

    def chosen(self, mask: np.ndarray) -> "Expected":
        """Of the samples where ``mask`` (N,) is true."""
        return replace(self, pictures=tuple(self.pictures[place] for place in np.flatnonzero(mask)))

    def tally(self) -> "Tally":
        return Tally(self)

    def precision(self, outputs: Mapping[str, np.ndarray]) -> Precision:
        """Of a model's outputs (N, ...) for all samples. Raises HeadError, AnnotationError."""
        tally = self.tally()
        for number in range(len(self.pictures)):
            tally.add({name: outputs[name][number] for name in self.head.outputs if name in outputs})
        return tally.precision()


class Tally:
    """Of one model: what it finds in each sample, in their order."""

    def __init__(self, expected: Expected) -> None:
        self._expected = expected
        self._found: list[Detections] = []

    def add(self, outputs: Mapping[str, np.ndarray]) -> None:
        """Of the next sample, without its axis. Raises HeadError."""
        self._found.append(self._expected.head.detect(outputs))

    def precision(self) -> Precision:
        """Of the samples so far. Raises AnnotationError as `mean_average_precision`."""
        pictures = self._expected.pictures[:len(self._found)]
        return mean_average_precision(pictures, self._found, most=self._expected.head.most)
