"""What a training session is: a file that says all of it, so that the same file trains the same model again."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from cores.config import PRESET_MACS
from gen.detection.heads.registry import AnyHead, read_head
from gen.files.document import DocumentError, read_document
from gen.train.errors import TrainError

__all__ = ["Budget", "Data", "Prune", "TrainingSession", "TrainingStage", "read_session", "session_of"]

_Count = Annotated[int, Meta(ge=1, le=1 << 24)]
_Share = Annotated[float, Meta(gt=0, le=1)]
_Weight = Annotated[float, Meta(ge=0, le=1e6)]
_Zoom = Annotated[float, Meta(ge=0.125, le=8)]
_Text = Annotated[str, Meta(min_length=1, max_length=200)]


class _Strict(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A field that is not known is an error: a mistyped one would be left out without a word."""


class Data(_Strict, kw_only=True, frozen=True):
    """Samples with labels: an .npz file, or a folder or zip file of images, one folder a class in the order of names;
    for a detector, annotations as `gen.detection.read` reads them, whose images are beside them, or in ``images``.

    Paths are relative to the session's folder; ``first`` and ``count`` choose a part.
    """

    path: str
    images: str | None = None
    first: Annotated[int, Meta(ge=0)] = 0
    count: _Count | None = None


class Prune(_Strict, kw_only=True, frozen=True):
    """What is pruned at the beginning of a stage, as `gen prune` does it, on the machine of so many MACs.

    ``kind`` is one of

    * blocks, to ``density``;
    * ``magnitude``: single weights, the first of two stages, to ``density`` or below ``threshold``;
    * ``gamma`` or ``apoz``: whole channels, a ``ratio`` of those that there are, or those below ``threshold``; a share
      of ``floor`` of the session's model stays in each layer or residual chain.

    ``layers``: patterns of names, see `gen.prune.layers.chosen_layers`. ``samples``: so many of the training data count
    the zeros of ``apoz``.
    """

    density: _Share | None = None
    ratio: Annotated[float, Meta(gt=0, lt=1)] | None = None
    threshold: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    kind: Literal["block", "magnitude", "gamma", "apoz"] = "block"
    layers: tuple[_Text, ...] = ()
    floor: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    samples: _Count = 256
    macs: int = 256

    def __post_init__(self) -> None:
        _require_macs(self.macs)
        measures = {"block": ("density",), "magnitude": ("density", "threshold")}.get(self.kind, ("ratio", "threshold"))
        given = [name for name in ("density", "ratio", "threshold") if getattr(self, name) is not None]
        if len(given) != 1 or given[0] not in measures:
            raise ValueError(f"kind {self.kind} needs {' or '.join(measures)}, and only that, "
                             f"not {' and '.join(given) or 'nothing'}")
        if self.floor and self.kind not in ("gamma", "apoz"):
            raise ValueError(f"floor is of channels, kind {self.kind} of weights")


class Budget(_Strict, kw_only=True, frozen=True):
    """How far a session prunes.

    It prunes no further once a variant is within ``cycles`` and ``parameters`` (those that are not 0). It ends before a
    variant whose accuracy on the test data is more than ``loss`` points below that of the session's model.
    """

    cycles: _Count | None = None
    parameters: Annotated[int, Meta(ge=1, le=1 << 40)] | None = None
    loss: Annotated[float, Meta(ge=0, le=100)] | None = None

    def __post_init__(self) -> None:
        if self.cycles is None and self.parameters is None and self.loss is None:
            raise ValueError("a budget has cycles, parameters or loss")


def _require_macs(macs: int) -> None:
    if macs not in PRESET_MACS:
        raise ValueError(f"macs must be one of {', '.join(map(str, PRESET_MACS))}, not {macs}")


class TrainingStage(_Strict, kw_only=True, frozen=True):
    """A part of the training.

    ``lr``: learning rate, falling to 0 along a cosine; ``gamma_penalty`` times the sum of |gamma| of all
    BatchNormalizations is added to the loss, so that channels can be pruned by them; ``distill``: share of the loss
    that compares with the outputs of the session's model as it was; ``norms``: whether BatchNormalizations take the
    statistics of each batch, and learn them; ``keep_zeros``: pruned weights stay zero. ``prune``: of all layers, or of
    groups of them, each in its own way. ``repeat``: pruned and trained so many times, a part further each time.
    ``binary``: patterns of layers that read signs, whose weights become plus or minus one number in each channel;
    ``estimator``: of the slope of signs, see `gen.train.binary.Estimator`. ``scales``: of a quantised model are learnt.
    ``streams``: of so many bits, through which layers of a quantised model are trained that compute with them.
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
    prune: Prune | tuple[Prune, ...] | None = None
    repeat: Annotated[int, Meta(ge=1, le=1000)] = 1
    binary: tuple[_Text, ...] = ()
    scales: bool = False
    estimator: Literal["clipped", "polynomial"] = "clipped"
    streams: Literal[8, 16, 32, 64, 128, 256, 512, 1024] | None = None

    def __post_init__(self) -> None:
        if self.repeat > 1 and not self.prunes:
            raise ValueError("repeat is of stages that prune; give more epochs instead")

    @property
    def prunes(self) -> tuple[Prune, ...]:
        return self.prune if isinstance(self.prune, tuple) else (self.prune,) if self.prune else ()


class TrainingSession(_Strict, kw_only=True, frozen=True):
    """``mean``, ``std``: of each channel, taken from the pixels 0..1 of images and not from arrays.

    ``mirror``, ``shift``: each training image mirrored or not, and moved by up to so many pixels, at random.
    ``head``: what the outputs of a detector are, docs/detection.md, or a file that says it. Its pictures are not
    shifted but, at random, enlarged by a factor within ``zoom`` (low, high), and cut to their size; below 1 there are
    zeros around them.
    ``budget``: how far it prunes; ``macs``: of the machine whose cycles are measured.
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
    budget: Budget | None = None
    macs: int = 256
    head: AnyHead | _Text | None = None
    zoom: tuple[_Zoom, _Zoom] = (1.0, 1.0)

    def __post_init__(self) -> None:
        _require_macs(self.macs)
        if self.zoom[0] > self.zoom[1]:
            raise ValueError("zoom is the smallest and the largest factor")
        if self.head is None and self.zoom != (1.0, 1.0):
            raise ValueError("zoom is of detectors, which have a head; shift is of classes")
        if self.head is not None and self.shift:
            raise ValueError("shift is of classes; zoom is of detectors")
        if self.head is not None and any(stage.distill for stage in self.stages):
            raise ValueError("distill is of classes; a detector learns by its head's loss alone")
        if self.budget and self.budget.loss is not None and self.test is None:
            raise ValueError("a budget of loss needs test data")


def read_session(path: Path) -> TrainingSession:
    """A session from a .json, .yaml or .yml file. Raises TrainError or HeadError that names it, OSError."""
    try:
        document = read_document(path, "a session", extra="train")
    except DocumentError as error:
        raise TrainError.of(error, f"{path}: {error}", file=str(path)) from None
    return session_of(document, path.parent, str(path))


def session_of(document: object, folder: Path, name: str) -> TrainingSession:
    """A session from what is in such a file, which errors call ``name`` and whose paths begin at ``folder``.

    Raises TrainError, HeadError.
    """
    try:
        session = msgspec.convert(document, TrainingSession)
    except msgspec.MsgspecError as error:
        raise TrainError.of(error, f"{name}: {error}", file=name) from None
    if isinstance(session.head, str):
        session = msgspec.structs.replace(session, head=read_head(folder / session.head))
    return session
