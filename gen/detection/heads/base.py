"""What all kinds of heads have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np
from msgspec import Meta

from gen.detection.boxes import distinct
from gen.detection.errors import HeadError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Detections", "Head", "Name", "Size"]

Name = Annotated[str, Meta(min_length=1, max_length=1000)]
_Share = Annotated[float, Meta(ge=0, le=1)]
#: Width and height of a box, as shares of the picture's.
Size = tuple[Annotated[float, Meta(gt=0, le=16)], Annotated[float, Meta(gt=0, le=16)]]

#: Candidates of a picture that are compared with each other: the best.
_COMPARED = 400


@dataclass(frozen=True, eq=False)
class Detections:
    """What is found in a picture, the best first. ``boxes``: (n, 4) corners, as shares of the picture's width and
    height; ``scores``: (n,) 0..1; ``classes``: (n,) numbers.
    """

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray


class Head(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True,
           tag_field="kind"):
    """``classes``: names in the order of the scores. Of boxes of a class that overlap by more than ``overlap`` the best
    one stays; of what has a score of ``least`` or more the best ``most``.

    A kind is a subclass with ``outputs``, and ``candidates`` or ``detect``; with ``loss`` it can be trained.
    """

    classes: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=10_000)]
    overlap: _Share = 0.45
    least: _Share = 0.01
    most: Annotated[int, Meta(ge=1, le=10_000)] = 100

    def __post_init__(self) -> None:
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("two classes have one name")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Of the model, in the order in which ``loss`` takes them."""
        raise NotImplementedError

    def candidates(self, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """All boxes (n, 4), as `Detections` has them, and their scores (n, classes), of one sample's outputs."""
        raise NotImplementedError

    def detect(self, values: Mapping[str, np.ndarray]) -> Detections:
        """What one sample's outputs, without their first axis, say. Raises HeadError for outputs of another model."""
        boxes, scores = self.candidates(values)
        places, classes = np.nonzero(scores >= self.least)
        found = scores[places, classes]
        order = np.argsort(-found, kind="stable")[:_COMPARED]
        boxes, classes, found = boxes[places[order]], classes[order], found[order]
        stay = distinct(boxes, classes, self.overlap)[:self.most]
        return Detections(boxes[stay], found[stay], classes[stay])

    def loss(self, found: "Sequence[Tensor]", objects: "Tensor") -> "Tensor":
        """Of a batch's outputs; ``objects``: (n, 6) rows of the picture's number in the batch, class, centre x and y,
        width and height, the latter as shares of the picture. Raises HeadError.
        """
        raise HeadError(f"a head of the kind {type(self).__struct_config__.tag} cannot be trained: give the outputs of "
                        "its last convolutions, and the kind ssd or yolo", code="not-trainable")

    def value(self, values: Mapping[str, np.ndarray], name: str, shape: Sequence[int | None]) -> np.ndarray:
        """An output, which must have this shape; None: any size. Raises HeadError."""
        if name not in values:
            raise HeadError(f"the model has no output {name}, which the head names; it has {', '.join(values)}")
        found = values[name]
        if len(shape) != found.ndim or any(size not in (None, real) for size, real in zip(shape, found.shape,
                                                                                         strict=True)):
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            raise HeadError(f"output {name} must have the shape ({wanted}) for each sample, as the head says, not "
                            f"{found.shape}")
        return found.astype(np.float32, copy=False)

