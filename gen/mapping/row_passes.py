"""Softmax and normalisations: passes of the row unit over tiles of pixels with all of their channels."""

from dataclasses import dataclass

import numpy as np

from cores.arch.numerics import POOL_WIDTH
from cores.arch.rows import MAX_CHANNELS, SQUARES_BITS, SUM_BITS, RowPass
from gen.ir.errors import LayerError
from gen.ir.layers.rows import RowOp
from gen.lowering.mapped import PlacedLayer
from gen.lowering.tiles import Tiles
from gen.mapping.base import LayerContext, Mapping
from gen.tiling.geometry import MAX_BLOCKS, Geometry, split
from gen.tiling.schedule import LATENCY, Tiling
from gen.tiling.weights import PARAMETER_BEATS

__all__ = ["RowMapping"]


@dataclass(frozen=True, eq=False, kw_only=True)
class RowMapping(Mapping):
    """For each head of each tile a POOL a pass, and a STORE of what the last one makes."""

    modes = {"rows": "passes over the channels of each pixel, by the pool unit"}

    takes = RowOp

    layer: RowOp

    @property
    def mode(self) -> str:
        return "rows"

    @classmethod
    def propose(cls, context: LayerContext[RowOp]) -> "RowMapping | None":
        layer, config = context.layer, context.config
        if not config.rows:
            return None
        blocks = _blocks(layer, context)
        # Half of the buffer at most, so that loading runs ahead.
        pixels = min(config.rows, config.input_depth // 2 // blocks * config.banks)
        if blocks > MAX_BLOCKS or not pixels or layer.repeats != (1, 1):
            raise LayerError(layer.name, f"no tile of it fits input_depth={config.input_depth}; build with a deeper "
                                         "input buffer", code="no-tile")
        if not _has_room(layer, context):
            raise LayerError(layer.name, f"rows of {layer.rows.channels} channels have sums that the row unit has no "
                                         "room for; clip its input to fewer steps", code="too-large",
                             limit=MAX_CHANNELS)
        geometry = Geometry.of(context.fitted, context.source, context.target)
        height, width = geometry.output_size
        assert height == 1, "pixels are one long row"
        parts = split(width, -(-width // pixels), 1)
        cycles = blocks * layer.heads * width * len(_passes(layer))
        beats = 2 * blocks * layer.heads * width + len(parts) * layer.heads * blocks * PARAMETER_BEATS
        tiling = Tiling(geometry, [(0, 1)], parts, ())
        return cls.at(context, tiling.finish((2.0 * LATENCY + cycles, float(beats), blocks, False), config))

    def emit(self, tiles: Tiles, placed: PlacedLayer) -> None:
        plan, layer = self.plan, self.layer
        for spatial in plan.spatial_tiles:
            for head in range(layer.heads):
                blocks = range(head * plan.chunk, (head + 1) * plan.chunk)
                tile = tiles.begin(placed, plan.geometry, spatial, blocks)
                chunk = tiles.chunks.load(placed, plan.geometry, spatial, blocks)
                tile.rows(plan.geometry, spatial, chunk, layer.rows, _passes(layer))
                chunk.place.last_reader = tiles.last_compute


def _has_room(layer: RowOp, context: LayerContext[RowOp]) -> bool:
    """Whether the sums of any row, and its results, are within their bits."""
    rows = layer.rows
    if not layer.sum_range(context.operands)[1].max() < 1 << POOL_WIDTH - 1:
        return False
    low, high = (end[:rows.channels].astype(np.int64) for end in context.operands[0])
    if not rows.moments:
        return rows.channels <= MAX_CHANNELS
    furthest = np.maximum(high - rows.zero_point, rows.zero_point - low)
    half = 1 << SUM_BITS - 1
    return bool((not rows.centred or -half <= low.sum() and high.sum() < half)
                and (furthest**2).sum() < 1 << SQUARES_BITS)


def _blocks(layer: RowOp, context: LayerContext[RowOp]) -> int:
    """Blocks of a head."""
    lanes, channels = context.config.ic_lanes, context.source.shape[0] // layer.heads
    assert layer.heads == 1 or channels % lanes == 0, "heads begin with blocks"
    return -(-channels // lanes)


def _passes(layer: RowOp) -> tuple[RowPass, ...]:
    return (RowPass.MAXIMUM, RowPass.TOTAL, RowPass.RESULT)[layer.rows.moments:]
