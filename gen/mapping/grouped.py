"""Convolutions in groups: output tiles of one channel block, each of which reads the blocks of its groups alone.

All groups of output lanes read the same input blocks in a step. Where they make different channels, each would wait
while the blocks of the other's are read. So all work on one channel block of the output, each on other pixels: words
are SPREAD (docs/architecture.md, "Spread words"). The input is loaded bundle by bundle: some neighbouring output
blocks, and all input blocks that these read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cores.config import NpuConfig
from gen.ir.errors import LayerError
from gen.ir.graph import Conv
from gen.lowering.mapped import PlacedLayer
from gen.lowering.tiles import Tiles
from gen.mapping.base import LayerContext
from gen.mapping.pack import is_pruned, pack, slices_of
from gen.mapping.plain import ConvMapping
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
from gen.tiling.weights import PARAMETER_BEATS, PackedWeights, TileSlices

__all__ = ["GroupedMapping"]


@dataclass(frozen=True)
class _Bundle:
    """Blocks of the output, and those of the input that are loaded for them."""

    outputs: range
    inputs: range


def _bundles(tiles: TileSlices, blocks: int, most: int) -> list[_Bundle]:
    """All output tiles, ``most`` together, in bundles of ``blocks`` input blocks, or as many as one tile reads."""
    found: list[_Bundle] = []
    for number, slices in enumerate(tiles):
        low = min(reduction.block for reduction in slices)
        high = max(reduction.block + reduction.blocks for reduction in slices)
        before = found[-1] if found else None
        if before and len(before.outputs) < most:
            inputs = range(min(low, before.inputs.start), max(high, before.inputs.stop))
            if len(inputs) <= max(blocks, len(before.inputs)):
                found[-1] = _Bundle(range(before.outputs.start, number + 1), inputs)
                continue
        found.append(_Bundle(range(number, number + 1), range(low, high)))
    return found


def _together(config: NpuConfig) -> int:
    """Output tiles of a bundle at most: instructions of the next one should be in their queues in time."""
    return max(1, config.queue_depth // 4)


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupedMapping(ConvMapping):
    """Each channel block of the output is a tile in SPREAD words. ``plan.chunk``: the input blocks of a bundle."""

    modes = {"grouped": "several groups of channels side by side on the lanes"}

    stores_windows = True

    @classmethod
    def propose(cls, context: LayerContext[Conv]) -> "GroupedMapping | None":
        layer, config = context.layer, context.config
        if layer.groups == 1 or not layer.is_exact or not config.groups_share or config.oc_groups == 1:
            return None
        geometry = Geometry.of(layer, context.source, context.target, packed_out=context.packed_out)
        # Where a row is one word anyway, nothing is gained.
        if geometry.output_size[1] <= config.pixel_lanes:
            return None
        fitted = context.fitted
        tiles = slices_of(fitted, config, narrow=True)
        return cls.at(context, _plan(fitted, geometry, tiles, config), tiles=tiles)

    @property
    def mode(self) -> str:
        return "grouped"

    @property
    def useful_macs(self) -> int:
        if not is_pruned(self.layer, self.tiles, self.config, narrow=True):
            return super().useful_macs
        return int(np.count_nonzero(self.layer.weights)) * self.target.shape[1] * self.target.shape[2]

    @cached_property
    def weights(self) -> PackedWeights:
        return PackedWeights(pack(self.layer, self.tiles, self.config, narrow=True), self.tiles)

    def emit(self, tiles: Tiles, placed: PlacedLayer) -> None:
        plan = self.plan
        for spatial in plan.spatial_tiles:
            for bundle in _bundles(self.tiles, plan.chunk, _together(self.config)):
                first = self.tiles[bundle.outputs.start]
                chunk = tiles.chunks.load(placed, plan.geometry, spatial, bundle.inputs, first)
                for block in bundle.outputs:
                    tile = tiles.begin(placed, plan.geometry, spatial, range(block, block + 1), spread=True)
                    for reduction in self.tiles[block]:
                        tile.compute(reduction, chunk)
                    # The last of them remains.
                    chunk.place.last_reader = tiles.last_compute
                    tile.end()


# -- cost ------------------------------------------------------------------------------------------------------------


def _estimate(layer: Conv, geometry: Geometry, tiles: TileSlices, config: NpuConfig,
              spatial_tiles: Sequence[tuple[SpatialTile, int]]) -> Estimate | None:
    """Of a tiling; None where the input buffer cannot hold what an output tile reads."""
    depth, taps, others = config.input_depth, geometry.steps(config), len(layer.others)
    largest = max((spatial for spatial, _ in spatial_tiles), key=lambda spatial: spatial.entries)
    chunk = min(MAX_BLOCKS, max(1, depth // 3 // largest.entries), -(-CHUNK_CYCLES // largest.load_beats))
    bundles = _bundles(tiles, chunk, _together(config))
    widest = max(len(bundle.inputs) for bundle in bundles)
    if widest > min(MAX_BLOCKS, depth // largest.entries):
        return None
    loaded = sum(len(bundle.inputs) for bundle in bundles)
    slices = [reduction for tile in tiles for reduction in tile]
    weight_beats = sum(taps * reduction.blocks * reduction.groups * reduction.step_beats(config)
                       for reduction in slices)
    cycles = beats = 0.0
    for spatial, count in spatial_tiles:
        words, written = geometry.step_cycles(spatial, config, spread=True), geometry.store_beats(spatial)
        compute = COMPUTE_OVERHEAD * len(slices) + taps * sum(
            reduction.blocks * reduction.groups * step_pace(words, reduction.step_beats(config), config)
            for reduction in slices)
        load = loaded * spatial.load_beats + weight_beats + len(tiles) * (PARAMETER_BEATS + others * written)
        store = len(tiles) * (geometry.store_values(spatial) * store_cycles(layer, config) + PARAMETER_BEATS)
        # Without room for two of them, a bundle is loaded when the one before it is computed.
        stalls = loaded * spatial.load_beats if 2 * widest * largest.entries > depth else 0
        cycles += count * (max(compute, load, store) + stalls)
        beats += count * (load + len(tiles) * written)
    fill = 2 * LATENCY + len(bundles[0].inputs) * spatial_tiles[0][0].load_beats
    drain = LATENCY + geometry.store_values(spatial_tiles[-1][0]) * store_cycles(layer, config) + PARAMETER_BEATS
    return cycles + fill + drain, beats, chunk, False


def _plan(layer: Conv, geometry: Geometry, tiles: TileSlices, config: NpuConfig) -> Plan:
    """Choose the tiling. Raises LayerError if none fits the configuration."""
    found = [(estimate, tiling) for tiling in candidates(
        geometry, config, spread=True, words=lambda spatial: geometry.words(spatial, config, spread=True))
        if (estimate := _estimate(layer, geometry, tiles, config, tiling.spatial_tiles))]
    if not found:
        raise LayerError(layer.name, f"no tile of it fits input_depth={config.input_depth} and "
                                     f"acc_depth={config.acc_depth}; build with deeper memories", code="no-tile")
    estimate, tiling = cheapest(found)
    return tiling.finish(estimate, config, spread=True)
