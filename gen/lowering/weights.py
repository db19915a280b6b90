"""Which weights a COMPUTE takes, and their way into the weight ring."""

from collections.abc import Sequence
from dataclasses import replace

from cores.arch.isa import Opcode, largest_field
from cores.config import NpuConfig
from gen.lowering.emitter import Emitter
from gen.lowering.mapped import PlacedLayer
from gen.tiling.geometry import Geometry
from gen.tiling.weights import ReductionSlice

__all__ = ["Weights"]

_MAX_BEATS = largest_field(Opcode.LOAD_WGT, "beats")


class Weights:
    """Emits LOAD_WGTs."""

    def __init__(self, config: NpuConfig, emitter: Emitter) -> None:
        self._config, self._emitter = config, emitter

    def beats(self, geometry: Geometry, reduction: ReductionSlice) -> int:
        """Beats of the weights of a COMPUTE."""
        steps = reduction.blocks * geometry.steps(self._config, reduction.rows) * reduction.groups
        return steps * reduction.step_beats(self._config)

    def cut(self, geometry: Geometry, slices: Sequence[ReductionSlice], blocks: range) -> list[ReductionSlice]:
        """What the slices have within some input blocks."""
        parts = []
        for reduction in slices:
            start, end = max(reduction.block, blocks.start), min(reduction.block + reduction.blocks, blocks.stop)
            if start < end:
                skipped = self.beats(geometry, replace(reduction, blocks=start - reduction.block))
                parts.append(replace(reduction, block=start, blocks=end - start, offset=reduction.offset + skipped))
        return parts

    def load(self, layer: PlacedLayer, offset: int, beats: int) -> None:
        """Fetch a part of a layer's weights, ``offset`` beats after its first."""
        start = layer.weights + offset
        for at in range(start, start + beats, _MAX_BEATS):
            self._emitter.emit(Opcode.LOAD_WGT, offset=at, beats=min(_MAX_BEATS, start + beats - at))
