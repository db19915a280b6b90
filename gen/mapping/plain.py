"""Convolutions tap by tap: output tiles of ``oc_groups`` channel blocks, each over all that it reads.

Where the plan holds a spatial tile's input in the buffer, its first output tile loads it and the others find it there.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from cores.config import NpuConfig
from gen.ir.errors import LayerError
from gen.ir.graph import Conv
from gen.lowering.buffer_allocation import BufferRing, Chunk
from gen.lowering.mapped import PlacedLayer
from gen.lowering.tiles import Tile, Tiles
from gen.mapping.base import LayerContext, Mapping
from gen.mapping.pack import is_pruned, is_spread, pack, slices_of
from gen.tiling.geometry import MAX_BLOCKS, Geometry, SpatialTile
from gen.tiling.schedule import (
    CHUNK_CYCLES,
    COMPUTE_OVERHEAD,
    LATENCY,
    Estimate,
    Plan,
    candidates,
    cheapest,
    step_pace,
    store_cycles,
)
from gen.tiling.weights import PARAMETER_BEATS, PackedWeights, ReductionSlice, TileSlices

__all__ = ["ConvCost", "ConvMapping", "PlainMapping", "SlicedMapping", "plan_conv"]


@dataclass(frozen=True, eq=False, kw_only=True)
class SlicedMapping(Mapping):
    """A layer whose output tiles take weights slice by slice of the reduction."""

    tiles: TileSlices

    @property
    def weight_beats(self) -> int:
        """Beats of the packed weights."""
        return sum(reduction.blocks * self.plan.geometry.steps(self.config, reduction.rows) * reduction.groups
                   * reduction.step_beats(self.config) for tile in self.tiles for reduction in tile)

    @property
    def input_blocks(self) -> int:
        """Channel blocks of a tile's input in the buffer."""
        return self.plan.geometry.input_blocks(self.source.shape[0], self.config)

    def needed_blocks(self, blocks: range) -> range:
        """The input blocks that output ``blocks`` are made of: all."""
        return range(self.input_blocks)

    def emit(self, tiles: Tiles, placed: PlacedLayer) -> None:
        plan, config, in_blocks = self.plan, self.config, self.input_blocks
        sets = list(zip(self.output_blocks(config.oc_groups), self.tiles, strict=True))
        for spatial in plan.spatial_tiles:
            if plan.held:
                _begin_held(tiles.chunks.ring, spatial.entries, in_blocks, plan.chunk)
            chunks: list[Chunk] = []
            for number, (blocks, slices) in enumerate(sets):
                last = number == len(sets) - 1
                tile = tiles.begin(placed, plan.geometry, spatial, blocks, spread=plan.spread and last)
                if number == 0 or not plan.held:
                    chunks = self.load_and_compute(tiles, tile, placed, slices, self.needed_blocks(blocks))
                else:
                    # By chunks where their places are wanted for the next spatial tile's input.
                    leaving = last and spatial is not plan.spatial_tiles[-1]
                    self._compute_held(tiles, tile, slices, chunks, by_chunk=leaving)
                if last or not plan.held:
                    _release(chunks, tiles.last_compute)
                tile.end()

    def load_and_compute(self, tiles: Tiles, tile: Tile, placed: PlacedLayer, slices: Sequence[ReductionSlice],
                         needed: range) -> list[Chunk]:
        """A spatial tile's first (or only) output tile: load input blocks ``needed`` chunk by chunk and compute."""
        plan, chunks = self.plan, list[Chunk]()
        for low in needed[::plan.chunk]:
            blocks = range(low, min(low + plan.chunk, needed.stop))
            work = tiles.weights.cut(plan.geometry, slices, blocks)
            if not work and not plan.held:
                continue
            chunk = tiles.chunks.load(placed, plan.geometry, tile.spatial, blocks, work)
            chunks.append(chunk)
            for reduction in work:
                tile.compute(reduction, chunk)
            if not plan.held:
                chunk.place.last_reader = tiles.last_compute
        return chunks

    def _compute_held(self, tiles: Tiles, tile: Tile, slices: Sequence[ReductionSlice], chunks: Sequence[Chunk], *,
                      by_chunk: bool) -> None:
        """A further output tile, whose input is in ``chunks``; frees each when done if ``by_chunk``."""
        for chunk in chunks if by_chunk else _joined(chunks):
            for reduction in tiles.weights.cut(self.plan.geometry, slices, chunk.blocks):
                tile.compute(reduction, chunk)
            # Before the tile's first COMPUTE there is none of its own to wait for: leave it to the tile's end.
            if by_chunk and tile.begun:
                chunk.place.last_reader = tiles.last_compute


@dataclass(frozen=True, eq=False, kw_only=True)
class ConvMapping(SlicedMapping):
    """A convolution."""

    takes = Conv

    layer: Conv

    @classmethod
    def tiled(cls, context: LayerContext[Conv], geometry: Geometry, tiles: TileSlices, **more: Any) -> Self:
        """The layer in tiles of these weights; ``more`` as of `at`. Raises LayerError when none fits the machine."""
        layer, config = context.fitted, context.config
        blocks = geometry.input_blocks(context.source.shape[0], config)
        plan = plan_conv(layer.name, ConvCost(layer, tiles, geometry, config, input_blocks=blocks))
        return cls.at(context, plan, tiles=tiles, **more)

    def needed_blocks(self, blocks: range) -> range:
        return blocks if self.layer.depthwise else super().needed_blocks(blocks)


@dataclass(frozen=True, eq=False, kw_only=True)
class PlainMapping(ConvMapping):
    """The layer as it is: what every machine can do."""

    modes = {
        "dense": "all weights, an output channel on each lane",
        "sparse": "only the weights that pruning has left",
        "spread": "few output channels, spread over all lanes",
        "depthwise": "one input channel at a time, with most lanes idle",
    }

    stores_windows = True

    @classmethod
    def propose(cls, context: LayerContext[Conv]) -> "PlainMapping | None":
        if not context.layer.is_exact:
            return None
        layer, config = context.fitted, context.config
        geometry = Geometry.of(layer, context.source, context.target, packed_out=context.packed_out)
        return cls.tiled(context, geometry, slices_of(layer, config))

    @property
    def takes_kept(self) -> bool:
        """Not without a weight for the last input block: no token would order loads after a STORE that nothing reads.
        """
        return any(item.block + item.blocks == self.input_blocks for tile in self.tiles for item in tile)

    @property
    def mode(self) -> str:
        if self.layer.depthwise:
            return "depthwise"
        if self.plan.spread and len(self.tiles) == 1:
            return "spread"
        return "sparse" if self.is_sparse else "dense"

    @cached_property
    def is_sparse(self) -> bool:
        """Whether it takes fewer steps than if all weights were there."""
        return is_pruned(self.layer, self.tiles, self.config)

    @property
    def useful_macs(self) -> int:
        if self.layer.depthwise or not self.is_sparse:
            return super().useful_macs
        return int(np.count_nonzero(self.layer.weights)) * self.target.shape[1] * self.target.shape[2]

    @cached_property
    def weights(self) -> PackedWeights:
        return PackedWeights(pack(self.layer, self.tiles, self.config), self.tiles)


# -- cost ------------------------------------------------------------------------------------------------------------


class ConvCost:
    """Cycles and beats of a convolution under different tilings.

    ``input_blocks``: of a tile's input in the buffer. What a mapping does in another way it overrides.
    """

    def __init__(self, layer: Conv, tiles: TileSlices, geometry: Geometry, config: NpuConfig, *,
                 input_blocks: int) -> None:
        self.config, self.geometry, self.depthwise, self.tiles = config, geometry, layer.depthwise, len(tiles)
        self.spread = self.may_spread and is_spread(layer, len(tiles) - 1, config)
        # Where a row is one word anyway, nothing is gained.
        self.spread = self.spread and geometry.output_size[1] > config.pixel_lanes
        self.out_blocks = -(-layer.weights.shape[0] // config.ic_lanes)
        self.in_blocks = min(input_blocks, config.oc_groups) if layer.depthwise else input_blocks
        self.others, self.store_cycles = len(layer.others), store_cycles(layer, config)
        taps = geometry.steps(config)
        #: (steps, beats of a step, spread) of all output tiles.
        self.steps: list[tuple[int, int, bool]] = []
        for part, spread in ((tiles[:-1], False), (tiles[-1:], True)) if self.spread else ((tiles, False),):
            counts: Counter[int] = Counter()
            for item in (item for tile in part for item in tile):
                counts[item.step_beats(config)] += item.blocks * item.groups
            self.steps += [(taps * count, beats, spread) for beats, count in counts.items()]
        self.slices = sum(map(len, tiles))

    #: Whether the last output tile's channels may be spread over all lanes.
    may_spread = True

    @property
    def all_spread(self) -> bool:
        return self.spread and self.tiles == 1

    def load(self, spatial: SpatialTile) -> float:
        """Cycles to bring in all input blocks of a tile."""
        return self.geometry.load_cycles(spatial, self.in_blocks, self.config)

    def words(self, spatial: SpatialTile) -> int:
        """Accumulator words of the widest output tile."""
        return self.geometry.words(spatial, self.config, spread=self.all_spread)

    def _compute(self, spatial: SpatialTile) -> float:
        """Cycles of all output tiles."""
        return sum(
            steps * step_pace(self.geometry.step_cycles(spatial, self.config, spread=spread), beats, self.config)
            for steps, beats, spread in self.steps)

    def _store(self, spatial: SpatialTile, blocks: int) -> int:
        return blocks * (self.geometry.store_values(spatial) * self.store_cycles + PARAMETER_BEATS)

    def estimate(self, spatial_tiles: Sequence[tuple[SpatialTile, int]]) -> Estimate:
        depth = self.config.input_depth
        largest = max((spatial for spatial, _ in spatial_tiles), key=lambda spatial: spatial.entries)
        tile_entries = self.in_blocks * largest.entries
        block_cycles = self._compute(largest) / self.tiles / self.in_blocks
        chunk = min(self.in_blocks, MAX_BLOCKS, max(1, round(CHUNK_CYCLES / max(1, block_cycles))),
                    max(1, depth // 2 // largest.entries))
        held = not self.depthwise and self.tiles > 1 and tile_entries <= depth
        weight_beats = sum(steps * beats for steps, beats, _ in self.steps)
        cycles = beats_moved = 0.0
        for spatial, count in spatial_tiles:
            written = self.geometry.store_beats(spatial)
            rounds = 1 if held else self.tiles
            chunks = -(-self.in_blocks // chunk)
            compute = self._compute(spatial) + COMPUTE_OVERHEAD * (self.slices + chunks * rounds)
            activations = self.load(spatial)
            load = activations * rounds + weight_beats + self.out_blocks * (PARAMETER_BEATS + self.others * written)
            stalls = 0.0
            if (held or chunks == 1) and tile_entries * 2 > depth:
                # What finds no room beside this tile waits until the last output tile frees its blocks.
                late = activations * (2 - depth / tile_entries)
                stalls = late if chunks == 1 else max(0.0, late - compute / self.tiles)
            elif chunks > 1 and not held and chunk * largest.entries * 2 > depth:
                stalls = min(load, compute)
            cycles += count * (max(compute, load, self._store(spatial, self.out_blocks)) + stalls)
            beats_moved += count * (load + self.out_blocks * written)
        fill = 2 * LATENCY + chunk * self.load(spatial_tiles[0][0]) / self.in_blocks
        drain = LATENCY + self._store(spatial_tiles[-1][0], min(self.config.oc_groups, self.out_blocks))
        return cycles + fill + drain, beats_moved, chunk, held


def plan_conv(name: str, cost: ConvCost) -> Plan:
    """Choose the tiling of layer ``name``. Raises LayerError when none fits the configuration."""
    config = cost.config
    found = [(cost.estimate(tiling.spatial_tiles), tiling)
             for tiling in candidates(cost.geometry, config, spread=cost.all_spread, words=cost.words)]
    if not found:
        raise LayerError(name, f"no tile of it fits input_depth={config.input_depth} and acc_depth={config.acc_depth}; "
                               "build with deeper memories", code="no-tile")
    estimate, tiling = cheapest(found)
    return tiling.finish(estimate, config, spread=cost.spread)


# -- places in the input buffer --------------------------------------------------------------------------------------


def _joined(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Chunks that lie one after the other in the buffer as one: one COMPUTE can cover them."""
    joined: list[Chunk] = []
    end = -1    # of the last one's places
    for chunk in chunks:
        before = joined[-1] if joined else None
        if before and end == chunk.place.base and chunk.blocks.stop - before.blocks.start <= MAX_BLOCKS:
            joined[-1] = Chunk(range(before.blocks.start, chunk.blocks.stop), before.place, chunk.loaded)
        else:
            joined.append(chunk)
        end = chunk.place.base + chunk.place.size
    return joined


def _begin_held(ring: BufferRing, entries: int, blocks: int, chunk: int) -> None:
    """Go back to the buffer's beginning where a held tile would otherwise be cut or find too little room."""
    depth = ring.limit
    if entries * blocks <= depth // 2:
        # In one piece, so that one COMPUTE can cover it.
        if not ring.room_ahead(entries * blocks):
            ring.restart()
        return
    at, waste = ring.next_entry, 0
    for start in range(0, blocks, chunk):
        size = entries * min(chunk, blocks - start)
        if at + size > depth:
            waste, at = depth - at, 0
        at += size
    if entries * blocks + waste > depth:
        ring.restart()


def _release(chunks: Sequence[Chunk], reader: int) -> None:
    """Free places that no further tile reads, unless their last reader is known to be earlier."""
    for chunk in chunks:
        if chunk.place.last_reader < 0:
            chunk.place.last_reader = reader
