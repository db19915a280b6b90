"""The tiling of pooling layers: each chunk of channel blocks of a spatial tile is an output tile.

A window that instructions or the input buffer have no room for is a tile by itself, pooled piece by piece: the pool
unit keeps its sum or maximum from one POOL to the next, so that it is rounded once (docs/datapath.md, "Pool unit").
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from cores.config import NpuConfig
from gen.ir.errors import LayerError
from gen.ir.graph import Pool
from gen.ir.tensor import Tensor
from gen.lowering.mapped import PlacedLayer
from gen.lowering.tiles import Tiles
from gen.mapping.base import LayerContext, Mapping
from gen.tiling.geometry import MAX_BLOCKS, MAX_KERNEL, Geometry, SpatialTile, part_counts, split
from gen.tiling.schedule import (
    COMPUTE_OVERHEAD,
    LATENCY,
    Estimate,
    Plan,
    Tiling,
    candidates,
    cost_of,
    samples,
    store_cycles,
)
from gen.tiling.weights import PARAMETER_BEATS

__all__ = ["PoolMapping"]

#: An output tile that takes fewer cycles only makes instructions.
_POOL_CYCLES = 256


@dataclass(frozen=True, eq=False, kw_only=True)
class PoolMapping(Mapping):
    """A POOL and a STORE for each chunk of each spatial tile, or a POOL for each piece of one large window.

    What has its rows repeated is pooled once for each repetition of a row: the pool unit keeps nothing that could be
    read again.
    """

    modes = {"max": "maxima of windows, by the pool unit", "sum": "sums of windows, by the pool unit"}

    takes = Pool
    takes_kept = True

    layer: Pool

    @classmethod
    def propose(cls, context: LayerContext[Pool]) -> "PoolMapping":
        return cls.at(context, _plan(context.fitted, context.source, context.target, context.config,
                                     packed_out=context.packed_out))

    @property
    def mode(self) -> str:
        return "max" if self.layer.maximum else "sum"

    def emit(self, tiles: Tiles, placed: PlacedLayer) -> None:
        plan, geometry = self.plan, self.plan.geometry
        for spatial in plan.spatial_tiles:
            forms = [geometry.piece(spatial.y, spatial.x, *piece) for piece in plan.pieces]
            parts = [(form, form.spatial_tile(0, 1, 0, 1, self.config)) for form in forms] or [(geometry, spatial)]
            for blocks, repetition in product(self.output_blocks(plan.chunk), range(self.layer.repeats[0])):
                tile = tiles.begin(placed, geometry, spatial, blocks, repetitions=range(repetition, repetition + 1))
                for number, (form, box) in enumerate(parts, start=1):
                    if repetition == 0 or len(parts) > 1:
                        chunk = tiles.chunks.load(placed, form, box, blocks)
                    tile.pool(form, box, chunk, maximum=self.layer.maximum, first=number == 1,
                              last=number == len(parts))
                    chunk.place.last_reader = tiles.last_compute


# -- cost ------------------------------------------------------------------------------------------------------------


def _estimate_pool(layer: Pool, blocks: int, spatial_tiles: Sequence[tuple[SpatialTile, int]],
                   config: NpuConfig) -> Estimate:
    """Of a pooling layer's tiling."""
    largest = max((spatial for spatial, _ in spatial_tiles), key=lambda spatial: spatial.entries)
    # A window takes a cycle for each tap, and no less than the store engine takes for its pixels.
    down, across = layer.repeats
    pixel_cycles = down * max(layer.kernel[0] * layer.kernel[1], across * store_cycles(layer, config))
    block_cycles = max(largest.rows * largest.cols * pixel_cycles, largest.load_beats)
    # A quarter of the buffer at most, so that loading runs ahead.
    chunk = min(blocks, MAX_BLOCKS, max(1, config.input_depth // 4 // largest.entries),
                -(-_POOL_CYCLES // block_cycles))
    cycles, beats = 2.0 * LATENCY + chunk * (spatial_tiles[0][0].load_beats + PARAMETER_BEATS), 0.0
    for spatial, count in spatial_tiles:
        work = blocks * (spatial.rows * spatial.cols * pixel_cycles + PARAMETER_BEATS)
        work += COMPUTE_OVERHEAD * -(-blocks // chunk)
        load = blocks * (spatial.load_beats + PARAMETER_BEATS)
        cycles += count * (max(work, load) if largest.entries * 2 <= config.input_depth else work + load)
        beats += count * (load + blocks * spatial.rows * spatial.cols * down * across)
    return cycles, beats, chunk, False


def _plan_pieces(geometry: Geometry, blocks: int, config: NpuConfig) -> Plan | None:
    """Choose the pieces of a pooling layer's windows, each of which is a tile; None if no pieces fit."""
    height, width = geometry.output_size
    kernel_rows, kernel_cols = geometry.kernel
    count, best = blocks * height * width * geometry.repeats[0], None
    # Windows at the edges have the padding.
    burst = LATENCY / config.outstanding_reads
    corners = set(product((0, height - 1), (0, width - 1)))
    for row_parts in part_counts(kernel_rows, -(-kernel_rows // MAX_KERNEL)):
        for col_parts in part_counts(kernel_cols, -(-kernel_cols // MAX_KERNEL)):
            rows, cols = split(kernel_rows, row_parts, 1), split(kernel_cols, col_parts, 1)
            forms = [geometry.piece(*corner, row, col)
                     for corner in corners for row, _ in samples(rows) for col, _ in samples(cols)]
            boxes = [form.spatial_tile(0, 1, 0, 1, config) for form in forms]
            if not all(form.fits(box, config) for form, box in zip(forms, boxes, strict=True)):
                continue
            beats = kernel_rows * kernel_cols + PARAMETER_BEATS
            # Each row is a burst, of which so many may be on their way.
            load = beats + kernel_rows * sum(max(0, burst - length) for _, length in cols)
            taps = kernel_rows * kernel_cols + COMPUTE_OVERHEAD * len(rows) * len(cols)
            alone = 2 * max(box.entries for box in boxes) > config.input_depth
            work = load + taps if alone else max(load, taps)
            estimate = 2.0 * LATENCY + boxes[0].load_beats + count * work, float(count * (beats + 1)), 1, False
            if best is None or cost_of(estimate) < cost_of(best[0]):
                best = estimate, tuple(product(rows, cols))
    if best is None:
        return None
    tiling = Tiling(geometry, split(height, height, 1), split(width, width, 1), ())
    return replace(tiling.finish(best[0], config), pieces=best[1])


def _is_alone(plan: Plan, config: NpuConfig) -> bool:
    """Whether the input buffer has no room for one window beside another."""
    return 2 * max(spatial.entries for spatial in plan.spatial_tiles) > config.input_depth


def _plan(layer: Pool, source: Tensor, target: Tensor, config: NpuConfig, *, packed_out: bool = False) -> Plan:
    """Choose the tiling of a pooling layer: ``chunk`` blocks of a spatial tile at a time, each its own output tile.

    Windows that instructions or the input buffer have no room for are pooled in pieces, one window after the other; a
    single window is where that is faster. ``packed_out``: it writes packed bits. Raises LayerError when no tiling
    fits the configuration.
    """
    blocks = -(-source.shape[0] // config.ic_lanes)
    refusal = LayerError(layer.name, f"no tile of it fits input_depth={config.input_depth}; build with a deeper input "
                                     "buffer", code="no-tile")
    plans = []
    try:
        geometry = Geometry.of(layer, source, target, packed_out=packed_out)
    except LayerError as error:
        refusal = error
    else:
        found = [(_estimate_pool(layer, blocks, tiling.spatial_tiles, config), tiling)
                 for tiling in candidates(geometry, config)]
        if found:
            estimate, tiling = min(found, key=lambda item: cost_of(item[0]))
            plans.append(tiling.finish(estimate, config))
    _, height, width = target.shape
    # The pixels of a row of signs are written together.
    if (width == 1 or not packed_out) and (not plans or height * width == 1 and _is_alone(plans[0], config)):
        plan = _plan_pieces(Geometry.of(layer, source, target, packed_out=packed_out, cut=True), blocks, config)
        plans += [] if plan is None else [plan]
    if not plans:
        raise refusal
    return min(plans, key=lambda plan: plan.cost)
