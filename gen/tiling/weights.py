"""Packed weights, as tiling and lowering know them; what is in them is the mappings' business (`gen.mapping.pack`)."""

from dataclasses import dataclass

import numpy as np

from cores.arch.isa import StepKind
from cores.arch.numerics import PARAMETER_BYTES
from cores.config import NpuConfig

__all__ = ["PARAMETER_BEATS", "PackedWeights", "ReductionSlice", "TileSlices"]

#: Beats of the parameters of one channel block: ``tn`` channels of PARAMETER_BYTES in beats of ``tn`` bytes.
PARAMETER_BEATS = PARAMETER_BYTES


@dataclass(frozen=True)
class ReductionSlice:
    """The slice of an output tile's reduction that one COMPUTE can cover: consecutive input blocks.

    Its steps are of one ``kind``, ``groups`` for each tap. Its weights begin ``offset`` beats after the layer's first.
    ``rows``: of the window mapping, the kernel's rows of steps that it has; None for all.
    """

    block: int
    blocks: int
    groups: int
    kind: StepKind
    offset: int
    rows: range | None = None

    def step_beats(self, config: NpuConfig) -> int:
        """Beats of the weight ring that a step takes."""
        return config.step_beats(self.kind)


#: The slices of each output tile (channels ``o * tm`` and following).
TileSlices = tuple[tuple[ReductionSlice, ...], ...]


@dataclass(frozen=True, eq=False)
class PackedWeights:
    """``data`` uint8 (beats, tn), in the order in which the slices of ``tiles`` take it."""

    data: np.ndarray
    tiles: TileSlices
