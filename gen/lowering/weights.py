"""Which weights a COMPUTE takes, and their way into the weight ring."""

from collections.abc import Sequence
from dataclasses import replace

from cores.arch.isa import Opcode, largest_field
from cores.config import NpuConfig
from gen.lowering.emitter import Emitter
from gen.lowering.mapped import PlacedLayer
from gen.tiling.geometry import Geometry
from gen.tiling.weights import Pass

__all__ = ["Weights"]

_MAX_BEATS = largest_field(Opcode.LOAD_WGT, "beats")


class Weights:
    """Emits LOAD_WGTs."""

    def __init__(self, config: NpuConfig, emitter: Emitter) -> None:
        self._config, self._emitter = config, emitter

    def beats(self, geometry: Geometry, part: Pass) -> int:
        """Beats of the weights of a COMPUTE."""
        return part.blocks * geometry.steps(self._config, part.rows) * part.groups * part.step_beats(self._config)

    def cut(self, geometry: Geometry, passes: Sequence[Pass], blocks: range) -> list[Pass]:
        """The parts of passes within some input blocks."""
        parts = []
        for item in passes:
            start, end = max(item.block, blocks.start), min(item.block + item.blocks, blocks.stop)
            if start < end:
                skipped = self.beats(geometry, replace(item, blocks=start - item.block))
                parts.append(replace(item, block=start, blocks=end - start, offset=item.offset + skipped))
        return parts

    def load(self, layer: PlacedLayer, offset: int, beats: int) -> None:
        """Fetch a part of a layer's weights, ``offset`` beats after its first."""
        start = layer.weights + offset
        for at in range(start, start + beats, _MAX_BEATS):
            self._emitter.emit(Opcode.LOAD_WGT, offset=at, beats=min(_MAX_BEATS, start + beats - at))
