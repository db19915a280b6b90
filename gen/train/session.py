"""What a training session is: a file that says all of it, so that the same file trains the same model again."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from cores.config import PRESET_MACS
from gen.files.document import DocumentError, read_document
from gen.train.errors import TrainError

__all__ = ["Data", "Prune", "TrainingSession", "TrainingStage", "read_session"]

_Count = Annotated[int, Meta(ge=1, le=1 << 24)]
_Share = Annotated[float, Meta(gt=0, le=1)]
_Weight = Annotated[float, Meta(ge=0, le=1e6)]


class _Strict(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A field that is not known is an error: a mistyped one would be left out without a word."""


class Data(_Strict, kw_only=True, frozen=True):
    """Samples with labels: an .npz file, or a folder or zip file of images, one folder a class in the order of names.

    ``path`` is relative to the session's folder; ``first`` and ``count`` choose a part.
    """

    path: str
    first: Annotated[int, Meta(ge=0)] = 0
    count: _Count | None = None


class Prune(_Strict, kw_only=True, frozen=True):
    """What is pruned at the beginning of a stage: to ``density`` in blocks of the machine of so many MACs.

    ``magnitude`` is without blocks, the first of two stages.
    """

    density: _Share
    kind: Literal["block", "magnitude"] = "block"
    macs: int = 256

    def __post_init__(self) -> None:
        if self.macs not in PRESET_MACS:
            raise ValueError(f"macs must be one of {', '.join(map(str, PRESET_MACS))}, not {self.macs}")


class TrainingStage(_Strict, kw_only=True, frozen=True):
    """A part of the training.

    ``lr``: learning rate, falling to 0 along a cosine; ``gamma_penalty`` times the sum of |gamma| of all
    BatchNormalizations is added to the loss, so that channels can be pruned by them; ``distill``: share of the loss
    that compares with the outputs of the session's model as it was; ``norms``: whether BatchNormalizations take the
    statistics of each batch, and learn them; ``keep_zeros``: pruned weights stay zero.
    """

    epochs: _Count
    lr: Annotated[float, Meta(gt=0, le=10)] = 0.01
    batch: _Count = 128
    optimizer: Literal["sgd", "adam"] = "sgd"
    weight_decay: _Weight = 0.0
    gamma_penalty: _Weight = 0.0
    distill: Annotated[float, Meta(ge=0, le=1)] = 0.0
    norms: bool = True
    keep_zeros: bool = True
    prune: Prune | None = None


class TrainingSession(_Strict, kw_only=True, frozen=True):
    """``mean``, ``std``: of each channel, taken from the pixels 0..1 of images and not from arrays.

    ``mirror``, ``shift``: each training image mirrored or not, and moved by up to so many pixels, at random.
    """

    model: str
    train: Data
    test: Data | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[Annotated[float, Meta(gt=0)], ...] = (1.0,)
    mirror: bool = False
    shift: Annotated[int, Meta(ge=0, le=64)] = 0
    seed: Annotated[int, Meta(ge=0, lt=1 << 32)] = 0
    stages: Annotated[tuple[TrainingStage, ...], Meta(min_length=1)]


def read_session(path: Path) -> TrainingSession:
    """A session from a .json, .yaml or .yml file. Raises TrainError that names it, OSError."""
    try:
        return msgspec.convert(read_document(path, "a session", extra="train"), TrainingSession)
    except (DocumentError, msgspec.MsgspecError) as error:
        raise TrainError.of(error, f"{path}: {error}", file=str(path)) from None
