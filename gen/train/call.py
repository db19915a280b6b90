"""A node of a model that is trained, at work."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from gen.train.binary import Estimator
from gen.train.errors import TrainError

__all__ = ["Call"]


@dataclass(frozen=True, eq=False)
class Call:
    """A node at work. ``inputs``: None for one left out; ``integers``: constants as Python numbers, by input."""

    inputs: list[Tensor | None]
    attributes: Mapping[str, Any]
    integers: Mapping[int, list[int]]
    #: Whether BatchNormalizations take the statistics of the batch.
    training: bool
    #: Of a QuantizeLinear: lowest and highest integer.
    limits: tuple[int, int] = (0, 255)
    #: Of a Sign: how its slope is estimated.
    estimator: Estimator = "clipped"
    #: Shapes of the constants in ``integers``, and how many outputs the node has.
    shapes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    outputs: int = 1

    def __getitem__(self, place: int) -> Tensor:
        value = self.inputs[place]
        if value is None:
            raise TrainError(f"its input {place} is missing")
        return value

    def optional(self, place: int) -> Tensor | None:
        return self.inputs[place] if place < len(self.inputs) else None

    def numbers(self, name: str, place: int) -> list[int]:
        """The integers of attribute ``name``, or of input ``place``, which newer operators have instead; else none."""
        return list(self.attributes.get(name, self.integers.get(place, [])))
