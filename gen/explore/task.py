"""Spaces of stochastic networks: a file with backbones or axes of their layers, circuits, lengths, and what a solution
must keep.
"""

from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from cores.arch.stochastic import MAX_LENGTH_LOG, MIN_LENGTH_LOG, Circuit
from cores.config import PRESET_MACS
from gen.energy.levels import CORTEX_A7, Level, Levels, read_levels
from gen.files.document import DocumentError, read_document
from gen.stochastic.backbone import Backbone

from .controller import ControllerSettings
from .errors import SpaceError
from .layer_axes import LayerAxes

__all__ = ["Task", "is_space_file", "read_task"]

_LABELS = tuple(circuit.label for circuit in Circuit)
_LENGTHS = tuple(1 << log for log in range(MIN_LENGTH_LOG, MAX_LENGTH_LOG + 1))
_Percent = Annotated[float, Meta(ge=0, le=100)]
_Backbones = Annotated[tuple[str, ...], Meta(min_length=1, max_length=1000)]


class Task(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, dict=True):
    """One deadline for all levels; ``bounds``: the least accuracy at each level that is used, in per cent, of the full
    battery first. Networks are ``backbones``, or those that ``layers`` has as axes. ``levels`` as
    `gen.energy.levels.Levels` has them; those of CORTEX_A7 unless given. ``macs``: of the machine's preset. ``about``
    is for people.

    Raises ValueError for circuits, lengths and presets that there are none of, other numbers of bounds, both or neither
    of ``backbones`` and ``layers``, BackboneError.
    """

    kind: Literal["stochastic"]
    backbones: _Backbones = ()
    layers: LayerAxes | None = None
    deadline_ms: Annotated[float, Meta(gt=0, le=1e9)]
    bounds: tuple[_Percent, ...]
    circuits: Annotated[tuple[str, ...], Meta(min_length=1)] = _LABELS
    lengths: Annotated[tuple[int, ...], Meta(min_length=1)] = _LENGTHS
    levels: tuple[Level, ...] | None = None
    macs: int = 256
    controller: ControllerSettings = ControllerSettings()
    about: str = ""

    @cached_property
    def table(self) -> Levels:
        return read_levels(CORTEX_A7) if self.levels is None else Levels(levels=self.levels)

    @property
    def shares(self) -> tuple[float, ...]:
        """The bounds."""
        return tuple(bound / 100 for bound in self.bounds)

    @cached_property
    def example(self) -> Backbone:
        """One of the networks."""
        return Backbone(self.backbones[0]) if self.layers is None else self.layers.example

    def __post_init__(self) -> None:
        if bool(self.backbones) == (self.layers is not None):
            raise ValueError("the networks are either backbones or layers: one of the two")
        for name, values, known in (("circuits", self.circuits, _LABELS), ("lengths", self.lengths, _LENGTHS),
                                    ("macs", (self.macs,), PRESET_MACS)):
            unknown = next((value for value in values if value not in known), None)
            if unknown is not None:
                raise ValueError(f"{name}: {unknown!r} is none of {', '.join(map(str, known))}")
        for word in self.backbones:
            Backbone(word)
        assert self.example
        used = [level.name for level in self.table.used]
        if len(self.bounds) != len(used):
            raise ValueError(f"bounds: one for each of the levels {', '.join(used)}, not {len(self.bounds)}")


def is_space_file(path: Path) -> bool:
    """Whether a path is that of a space in place of a model."""
    return path.suffix in (".json", ".yaml", ".yml")


def read_task(path: Path) -> Task:
    """Raises SpaceError that names the file, OSError."""
    try:
        return msgspec.convert(read_document(path, "a space", extra="explore"), Task)
    except (DocumentError, msgspec.MsgspecError) as error:
        raise SpaceError.of(error, f"{path}: {error}", file=str(path)) from None
